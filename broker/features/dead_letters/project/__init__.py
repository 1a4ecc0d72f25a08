"""Lists and groups the dead letters of all subscriptions of a project."""
