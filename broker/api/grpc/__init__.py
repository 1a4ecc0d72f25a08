"""gRPC over HTTP/2 streams: framing, limits, deadlines, errors."""
