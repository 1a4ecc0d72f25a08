"""A setting as operators may see it."""

from typing import NamedTuple


class ShownSetting(NamedTuple):
    """`value` has no password; "" if there is none.  `origin`: "default", "BROKER_PORT", "--port"."""

    name: str
    value: str
    origin: str
