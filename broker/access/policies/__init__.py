"""Policies, roles and permissions, and the check of a permission."""
