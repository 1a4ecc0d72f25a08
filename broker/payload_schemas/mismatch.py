"""What a message is told that is not as its schema says."""


class Mismatch(Exception):
    """`str()` says where in the message and why, without a value of it: it may be logged."""
