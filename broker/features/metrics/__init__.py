"""Backlog gauges for Prometheus: what topics and subscriptions have waiting, read for a scrape."""
