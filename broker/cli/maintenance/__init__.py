"""Commands that work on the database or on settings without a running server."""
