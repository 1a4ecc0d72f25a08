"""Texts from outside that must be stored whatever they are."""


def storable(text: str) -> str:
    """The text as PostgreSQL can hold it: U+FFFD in place of U+0000 and "?" in place of lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
