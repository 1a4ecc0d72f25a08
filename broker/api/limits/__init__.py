"""Memory, turns and slots of the calls that a process serves at the same time."""
