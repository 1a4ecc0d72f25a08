"""Replaces a dead letter by an edited message for the subscription that gave it up."""
