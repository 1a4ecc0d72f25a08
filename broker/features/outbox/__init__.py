"""Publishes and acknowledges in an application's own transaction, through SQL functions."""
