"""Schedules, which publish a message again and again, by cron or by an interval."""
