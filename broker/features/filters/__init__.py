"""Tests a filter on retained messages, and changes the filter of a subscription."""
