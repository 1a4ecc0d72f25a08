"""Pull and StreamingPull: a queue of waiting pulls, and the flow control of streams."""
