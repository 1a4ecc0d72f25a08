"""Builds, starts and stops the parts of one broker process."""
