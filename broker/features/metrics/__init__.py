"""Backlog gauges for Prometheus: the backlogs of topics and subscriptions, read for a scrape."""
