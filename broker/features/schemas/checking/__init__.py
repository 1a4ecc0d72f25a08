"""Avro, protobuf and JSON Schema: reads definitions and checks messages."""
