"""Where the console is."""

from urllib.parse import quote

PREFIX = "/console/"


def address_of(name: str) -> str:
    """Return the address of the page of a resource."""
    return PREFIX + quote(name)
