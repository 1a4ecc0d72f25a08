"""Sessions of the console, and links that begin one."""
