"""Long-running operations: started by a call, done step by step by any process."""
