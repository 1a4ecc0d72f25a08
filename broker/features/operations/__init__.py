"""Long-running operations: a call starts them, and any process runs them, step by step."""
