"""What a greedy tenant does to his neighbours.  An attack is a file here, and a line in `__main__.py`."""
