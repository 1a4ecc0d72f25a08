"""Broker compatible with the Google Cloud Pub/Sub API, durable on PostgreSQL."""
