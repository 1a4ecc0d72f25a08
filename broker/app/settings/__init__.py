"""The settings of the broker: definitions, checks, and where values come from."""
