"""Redrive: dead letters return to their subscription, or go to another topic."""
