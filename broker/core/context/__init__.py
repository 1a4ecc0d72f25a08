"""State shared by the parts of one process: the Core, wake-ups, readiness, the storage alarm."""
