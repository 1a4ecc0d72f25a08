"""Updates in Google's messages: a resource with new values, and a field mask."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from broker.api.generated.messages import FieldMask
from broker.model.errors import InvalidArgument
from broker.model.field_mask import Update, not_mutable, unknown_path

Resource = TypeVar("Resource")

OUTPUT_ONLY = "state"  # a field of this name is output only, at any depth of a resource
_SCALARS = "google.protobuf."  # Duration and the like: one value, though a message


def update_of(
    given: Any,
    paths: Sequence[str],
    to_message: Callable[[Resource], Any],
    from_message: Callable[[Any], Resource],
) -> Update[Resource]:
    """The change of the resource that `given` names, which has the new values; what it has not is cleared.

    Raises InvalidArgument for new values that no resource can have, masked or not, and for paths that lead nowhere
    within a field; whether the field itself can be changed is the service's to say.
    """
    from_message(given)
    known = given.DESCRIPTOR.fields_by_name
    within = [path for path in paths if path.partition(".")[0] in known]
    for path in within:
        _check_path(given.DESCRIPTOR, path)

    def wanted(current: Resource) -> Resource:
        message = to_message(current)
        FieldMask(paths=within).MergeMessage(_with_parents(given, within), message, True, True)
        return from_message(message)

    return Update(given.name, paths, wanted)


def extensions_named(paths: Sequence[str], resource: str, names: Collection[str]) -> Collection[str]:
    """Returns those of the extensions `names` that the paths of a mask name; protobuf's masks do not reach them.

    All are named by "extensions", one by "extensions.delay".  Raises InvalidArgument for a path that leads to none.
    """
    within = {path: name for path in paths for field, _, name in [path.partition(".")] if field == "extensions"}
    if "extensions" in within:
        return names
    for path, name in within.items():
        whole = name.partition(".")[0]
        if whole not in names:
            raise unknown_path(path, resource, f"'extensions' has: {', '.join(sorted(names))}.")
        if whole != name:
            raise unknown_path(path, resource, f"'extensions.{whole}' can only be named as a whole.")
    return within.values()


def _check_path(resource: Descriptor, path: str) -> None:
    """Raises InvalidArgument that says what there is, for a path that leads to nothing that can be set."""
    holder = resource
    *parents, last = path.split(".")
    for depth, name in enumerate(parents):
        field = holder.fields_by_name.get(name)
        if field is None:
            raise _unknown(path, resource, ".".join(parents[:depth]), holder)
        if not _has_paths(field):
            whole = ".".join(parents[: depth + 1])
            raise unknown_path(path, resource.name, f"'{whole}' can only be named as a whole.")
        assert field.message_type is not None
        holder = field.message_type
    if last not in holder.fields_by_name:
        raise _unknown(path, resource, ".".join(parents), holder)
    if parents and last == OUTPUT_ONLY:
        raise not_mutable(path, resource.name)


def _has_paths(field: FieldDescriptor) -> bool:
    """Whether it is a message, not a list or a map of some."""
    kind = field.message_type
    return kind is not None and not field.is_repeated and not kind.full_name.startswith(_SCALARS)


def _unknown(path: str, resource: Descriptor, parent: str, holder: Descriptor) -> InvalidArgument:
    names = ", ".join(sorted(name for name in holder.fields_by_name if name != OUTPUT_ONLY))
    return unknown_path(path, resource.name, f"'{parent}' has: {names or 'no fields'}.")


def _with_parents(given: Any, paths: Sequence[str]) -> Any:
    """`given`, with all that the paths lead through: what is absent within it is to be cleared, too."""
    message = type(given)()
    message.CopyFrom(given)
    for path in paths:
        holder = message
        for name in path.split(".")[:-1]:
            holder = getattr(holder, name)
            holder.SetInParent()
    return message
