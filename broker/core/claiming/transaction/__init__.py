"""A claim: locks cursors, finds due and fresh messages, allocates them, and writes delivery attempts."""
