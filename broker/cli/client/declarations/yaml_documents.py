"""YAML documents whose names are strings, and whose values mean the same in YAML 1.1 and 1.2.

PyYAML reads YAML 1.1, in which `no` and `on` are booleans and 010 is eight.  Other tools read YAML 1.2, in which
they are strings and ten (docs/decisions/0072-standards.md).  What the two read differently is refused with its line
and the remedy, and so is what JSON does not have.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

import yaml

from broker.cli.stop import Misuse

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_KINDS = {"bool": "a boolean", "int": "a number", "float": "a number", "null": "null"}
_ALLOWED = {f"{_TAG}{kind}" for kind in ("str", "map", "seq", *_KINDS)}
_DECIMAL = {
    f"{_TAG}int": re.compile(r"[-+]?(0|[1-9][0-9]*)"),
    f"{_TAG}float": re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"),
}
_SHOWN = 100


class _Loader(yaml.SafeLoader):
    """Reads a time as a string, as JSON has it."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != f"{_TAG}timestamp"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Document(NamedTuple):
    """The values of a document, and the lines on which they stand."""

    value: Any
    node: yaml.Node | None

    def line_of(self, path: Iterable[str | int]) -> str:
        """ " line 3", of the value at this path; "" if it has none of its own."""
        node = self._at(path)
        return "" if node is None else _line(node)

    def remedy(self, path: Iterable[str | int]) -> str:
        """How to write the value at this path so that it is a string; "" if it is one, or no scalar."""
        node = self._at(path)
        if not isinstance(node, yaml.ScalarNode) or node.tag.removeprefix(_TAG) not in _KINDS or not node.value:
            return ""
        return f"; YAML reads {node.value[:_SHOWN]} as {_kind(node)}, so quote it: {_quoted(node)}"

    def _at(self, path: Iterable[str | int]) -> yaml.Node | None:
        node = self.node
        for part in path:
            if isinstance(node, yaml.MappingNode):
                node = next((value for key, value in node.value if key.value == part), None)
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                node = node.value[part]
        return node


def read_documents(text: str, file: str) -> list[Document]:
    """Raises Misuse."""
    try:
        return list(_documents(_Loader(text), file))
    except yaml.MarkedYAMLError as error:
        at = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise Misuse(f"{file}{at}: it is not YAML: {error.problem}") from None
    except RecursionError:
        raise Misuse(f"{file} cannot be read: it is nested too deep") from None
    except (yaml.YAMLError, ValueError) as error:
        raise Misuse(f"{file} cannot be read: {error}") from None


def _documents(loader: _Loader, file: str) -> Iterator[Document]:
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                _check(node, file, (), set())
                yield Document(loader.construct_document(node), node)
    finally:
        loader.dispose()


def _check(node: yaml.Node, file: str, around: tuple[yaml.Node, ...], seen: set[int]) -> None:
    """`around`: the nodes that this one is within; `seen`: the ids of those that are right.  Raises Misuse."""
    if node in around:
        _refuse(node, file, "it contains itself, by an alias")
    if id(node) in seen:
        return
    if node.tag not in _ALLOWED:
        _refuse(node, file, f"it has the tag {node.tag[:_SHOWN]}; a declaration has only what JSON has")
    if isinstance(node, yaml.ScalarNode):
        _check_scalar(node, file)
    elif isinstance(node, yaml.MappingNode):
        _check_names(node, file)
        for _, value in node.value:
            _check(value, file, (*around, node), seen)
    else:
        for value in node.value:
            _check(value, file, (*around, node), seen)
    seen.add(id(node))


def _check_names(node: yaml.MappingNode, file: str) -> None:
    names: set[str] = set()
    for key, _ in node.value:
        if key.tag == _MERGE:
            continue
        if not isinstance(key, yaml.ScalarNode):
            _refuse(key, file, "a name is a string, not a list or a mapping")
        if key.tag.removeprefix(_TAG) in _KINDS:
            shown = key.value[:_SHOWN]
            _refuse(key, file, f"the name {shown} is read as {_kind(key)} by YAML, so quote it: {_quoted(key)}")
        if key.tag != f"{_TAG}str":
            _refuse(key, file, f"a name has the tag {key.tag[:_SHOWN]}; it is a string")
        if key.value in names:
            _refuse(key, file, f"{key.value[:_SHOWN]!r} is given twice")
        names.add(key.value)


def _check_scalar(node: yaml.ScalarNode, file: str) -> None:
    pattern = _DECIMAL.get(node.tag)
    if pattern is not None and not pattern.fullmatch(node.value):
        shown = node.value[:_SHOWN]
        _refuse(
            node,
            file,
            f"{shown} is a number that not all read alike; write a decimal one, or quote it: {_quoted(node)}",
        )


def _kind(node: yaml.ScalarNode) -> str:
    return _KINDS[node.tag.removeprefix(_TAG)]


def _quoted(node: yaml.ScalarNode) -> str:
    return f'"{node.value[:_SHOWN]}"'


def _line(node: yaml.Node) -> str:
    return f" line {node.start_mark.line + 1}"


def _refuse(node: yaml.Node, file: str, what: str) -> NoReturn:
    raise Misuse(f"{file}{_line(node)}: {what}")
