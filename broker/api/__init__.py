"""Serves calls over REST and gRPC: checks who calls, decodes requests, runs handlers, encodes answers."""
