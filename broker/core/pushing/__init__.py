"""Push delivery: plans requests, sends them, settles messages, reports on endpoints."""
