"""The command line: its tables of commands and nouns."""
