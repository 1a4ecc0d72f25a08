"""Limits of rates, connections and retained bytes, for projects and principals."""
