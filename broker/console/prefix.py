"""Where the console is."""

from urllib.parse import quote

PREFIX = "/console/"


def address_of(name: str) -> str:
    """Return the address of the page of a resource."""
    return PREFIX + quote(name)


def own_path(path: str) -> str:
    """Return a path below /console/, so that a link to the sign-in leads nowhere else.

    Browsers read a backslash as a slash, drop tabs and line ends, and go up at `..`.
    """
    route = path.partition("?")[0]
    segments = route.lower().replace("%2e", ".").split("/")
    is_plain = path.isascii() and path.isprintable() and " " not in path and "\\" not in path
    is_own = is_plain and route.startswith(PREFIX) and "//" not in route and not {".", ".."}.intersection(segments)
    return path if is_own else PREFIX
