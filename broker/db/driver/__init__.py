"""Connections, pools, transactions, prepared statements, notifications."""
