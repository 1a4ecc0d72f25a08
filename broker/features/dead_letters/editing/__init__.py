"""Replaces a dead letter by an edited message for the subscription that dead-lettered it."""
