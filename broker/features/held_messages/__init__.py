"""Gives messages back that consumers hold, and dead-letters single messages, by their ids."""
