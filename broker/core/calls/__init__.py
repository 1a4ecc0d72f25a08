"""Calls about resources over REST and gRPC, and the fields that Google's messages lack."""
