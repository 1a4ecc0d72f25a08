"""One claim: locks cursors, finds due and fresh messages, allocates them, writes what was handed out."""
