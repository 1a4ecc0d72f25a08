"""The settings of the broker: definitions, checks, and where their values come from."""
