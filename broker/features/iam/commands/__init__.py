"""`broker auth`: commands about accounts, keys, roles and policies."""
