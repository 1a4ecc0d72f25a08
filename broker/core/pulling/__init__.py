"""Pull and StreamingPull: pulls that wait in a queue, and the flow control of streams."""
