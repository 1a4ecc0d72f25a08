"""Update masks."""

import re
from collections.abc import Collection, Sequence

from broker.domain.errors import InvalidArgument

_UPPER = re.compile(r"[A-Z]")


def parse_field_mask(text: str) -> list[str]:
    """The paths of a mask in JSON form ("labels,retryPolicy"), in snake_case."""
    paths = (path.strip() for path in text.split(","))
    return [_UPPER.sub(lambda match: "_" + match[0].lower(), path) for path in paths if path]


def check_field_mask(
    paths: Sequence[str], *, resource: str, mutable: Collection[str], immutable: Collection[str]
) -> None:
    """Raises InvalidArgument, in the service's words, for a mask that is empty or names what cannot be changed."""
    request = f"Update{resource}Request"
    if not paths:
        raise InvalidArgument(
            f"The update_mask in the {request} must be set, and must contain a non-empty paths list."
        )
    for path in paths:
        if path in immutable:
            raise InvalidArgument(
                f"Invalid update_mask provided in the {request}: the '{path}' field in the {resource} is not "
                "mutable."
            )
        if path not in mutable:
            raise InvalidArgument(
                f"Invalid update_mask provided in the {request}: '{path}' is not a known {resource} field. Note "
                "that field paths must be of the form 'push_config' rather than 'pushConfig'."
            )
