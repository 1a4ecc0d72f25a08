"""Where the console is."""

PREFIX = "/console/"
