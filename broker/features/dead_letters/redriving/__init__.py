"""Redrive: dead letters go back to their subscription, or to another topic."""
