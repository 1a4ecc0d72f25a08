"""Update masks, and the updates that they limit."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker.model.errors import InvalidArgument

Resource = TypeVar("Resource")

_UPPER = re.compile(r"[A-Z]")


@dataclass(frozen=True, slots=True)
class Update(Generic[Resource]):
    """A change of the resource called `name`: of what the paths of a mask name, in snake_case, and of nothing else.

    A path may reach into a field ("push_config.no_wrapper").  `wanted` takes the resource as it stands and returns
    one in which all that is named is as it is to be; it raises InvalidArgument for what no such resource can have.
    """

    name: str
    paths: Sequence[str]
    wanted: Callable[[Resource], Resource]

    @property
    def fields(self) -> set[str]:
        """The fields that change, as a whole or in part."""
        return {path.partition(".")[0] for path in self.paths}


def parse_field_mask(text: str) -> list[str]:
    """The paths of a mask in JSON form ("labels,retryPolicy.minimumBackoff"), in snake_case."""
    paths = (path.strip() for path in text.split(","))
    return [_UPPER.sub(lambda match: "_" + match[0].lower(), path) for path in paths if path]


def check_field_mask(
    paths: Sequence[str], *, resource: str, mutable: Collection[str], immutable: Collection[str]
) -> None:
    """Raises InvalidArgument, in the service's words, for a mask that is empty or names what cannot be changed.

    Of a path that reaches into a field, this judges the field.
    """
    if not paths:
        raise InvalidArgument(
            f"The update_mask in the Update{resource}Request must be set, and must contain a non-empty paths list."
        )
    for path in paths:
        field = path.partition(".")[0]
        if field in immutable:
            raise not_mutable(path, resource)
        if field not in mutable:
            raise unknown_path(path, resource)


def not_mutable(path: str, resource: str) -> InvalidArgument:
    """Returns the error for the path of a field that cannot be changed."""
    return InvalidArgument(
        f"Invalid update_mask provided in the Update{resource}Request: the '{path}' field in the {resource} is not "
        "mutable."
    )


def unknown_path(path: str, resource: str, why: str = "") -> InvalidArgument:
    """Returns the error for a path to no field.  `why` says what there is instead, where that is not obvious."""
    return InvalidArgument(
        f"Invalid update_mask provided in the Update{resource}Request: '{path}' is not a known {resource} field. "
        f"Note that field paths must be of the form 'push_config' rather than 'pushConfig'.{why and f' {why}'}"
    )
