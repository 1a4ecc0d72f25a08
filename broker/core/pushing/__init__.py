"""Push delivery: plans requests, sends them, settles messages, and reports on endpoints."""
