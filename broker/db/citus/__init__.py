"""Support for tables that Citus distributes over nodes."""
