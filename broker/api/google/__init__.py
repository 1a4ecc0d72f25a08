"""Converts values between Google's messages and the broker's own types, for REST and gRPC."""
