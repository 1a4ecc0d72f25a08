"""HTTP/2: frames, streams, flow control windows and header blocks."""
