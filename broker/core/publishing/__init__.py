"""Publishing: checks and packs messages, and commits those of a shard together."""
