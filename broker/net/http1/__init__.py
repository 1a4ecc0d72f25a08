"""HTTP/1.1: connections, the parser, and exchanges of a request and its response."""
