"""Seeks of subscriptions to times and snapshots, and their previews."""
