"""What a topic may do that Google's topics do not; each is switched on by itself, and nothing is on by default."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicExtensions:
    """`delay`: publishers may have messages delivered later (delay.py)."""

    delay: bool = False


NO_EXTENSIONS = TopicExtensions()
