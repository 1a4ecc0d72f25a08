"""Messages that expire: a time to live that their publisher names."""
