"""A setting as operators see it."""

from typing import NamedTuple


class ShownSetting(NamedTuple):
    """A setting and where its value comes from.

    `value` contains no password, and is "" if the setting has no value.  `origin`: "default", or the name of the
    environment variable or option that sets it, such as "BROKER_PORT" or "--port".
    """

    name: str
    value: str
    origin: str
