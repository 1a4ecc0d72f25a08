"""JSON requests and responses, by protobuf's JSON mapping."""
