"""Messages that come later, at a time that their publisher names."""
