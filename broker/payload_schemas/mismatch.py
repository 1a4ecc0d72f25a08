"""What a message is told that is not as its schema says."""


class Mismatch(Exception):
    """`str()` says where in the message and why."""


class TooLarge(Mismatch):
    """It cannot be told what the message is like; another revision would not do better."""
