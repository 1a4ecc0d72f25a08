"""HTTP/1.1: connections, the parser, and the exchange of a request and its answer."""
