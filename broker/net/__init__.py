"""Connections and the requests in them: HTTP/1.1, HTTP/2 and TLS on one port."""
