"""Acks, nacks and ack deadlines: one statement for all that arrive in a shard at about the same time."""
