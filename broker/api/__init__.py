"""Serves calls over REST and gRPC: authenticates callers, decodes requests, runs handlers, encodes responses."""
