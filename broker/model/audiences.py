"""The URLs that identify a service as the audience of tokens."""

from urllib.parse import urlsplit


def split_list(text: str) -> list[str]:
    """Returns the elements of a list that is separated by commas."""
    return [one.strip() for one in text.split(",") if one.strip()]


def check_audiences(text: str) -> None:
    """Raises ValueError unless all are URLs."""
    for audience in split_list(text):
        parts = urlsplit(audience)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
            raise ValueError(audience)
