"""Makes any external text storable, and quotes names for statements that people run."""

import re

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")  # a name that needs no quotes, unless it is a keyword


def storable(text: str) -> str:
    """The text as PostgreSQL can hold it: U+FFFD in place of U+0000 and "?" in place of lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def quoted(name: str) -> str:
    """An identifier as people write it: with quotes only if it needs them."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'
