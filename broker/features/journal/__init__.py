"""Follows the journal of a subscription as it is written."""
