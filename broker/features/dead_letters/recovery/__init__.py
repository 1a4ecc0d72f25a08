"""Pushes again what a push subscription gave up or its endpoint never received."""
