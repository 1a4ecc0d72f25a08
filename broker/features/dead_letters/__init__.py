"""Dead letters: lists, forwarding, redrive, discarding, editing, and recovery of failed pushes."""
