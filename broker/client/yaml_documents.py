"""Reads YAML documents whose names are strings, and whose values mean the same in YAML 1.1 and 1.2.

PyYAML reads YAML 1.1, in which `no` and `on` are booleans and 010 is eight.  Other tools read YAML 1.2, in which
they are strings and ten (docs/decisions/0072-standards.md).  A value that the two read differently is refused, with
its line and the remedy, and so are values that JSON does not have.

A few hundred bytes of aliases can expand to gigabytes.  So depth and nodes are counted while a document is
composed, an alias as the nodes that it refers to, and reading stops when there are too many.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

import yaml

from broker.client.stop import Misuse

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_KINDS = {"bool": "a boolean", "int": "a number", "float": "a number", "null": "null"}
_ALLOWED = {f"{_TAG}{kind}" for kind in ("str", "map", "seq", *_KINDS)}
_DECIMAL = {
    f"{_TAG}int": re.compile(r"[-+]?(0|[1-9][0-9]*)"),
    f"{_TAG}float": re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"),
}
_SHOWN = 100
MAX_DEPTH = 100  # of lists and mappings within each other
MAX_NODES = 250_000  # of all documents of a file: names, values, lists and mappings
_MAX_DIGITS = 100  # of a number


class _Measure(NamedTuple):
    """The size of a node with all of its children: the number of nodes, and the levels below it."""

    nodes: int
    height: int


class _Loader(yaml.SafeLoader):
    """Composes documents within the limits, and reads a time as a string, as JSON has it."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text)
        self._file = file
        self._nodes = 0  # so far
        self._depth = 0  # of the node that is composed
        self._deepest = 0  # of what has been composed within it
        self._measures: dict[str, _Measure] = {}  # of complete nodes, by their anchors

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Raises Misuse."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        anchor: Any = event.anchor
        if isinstance(event, yaml.AliasEvent):
            node = super().compose_node(parent, index)
            measure = self._measures.get(anchor)
            if measure is None:
                _refuse(event, self._file, f"*{anchor[:_SHOWN]} is within what it names: it contains itself")
            self._count(event, measure)
            return node
        self._measures.pop(anchor, None)
        nodes, deepest = self._nodes, self._deepest
        self._count(event, _Measure(1, 0))
        self._depth, self._deepest = self._depth + 1, self._depth
        node = super().compose_node(parent, index)
        self._depth -= 1
        if anchor is not None:
            self._measures[anchor] = _Measure(self._nodes - nodes, self._deepest - self._depth)
        self._deepest = max(deepest, self._deepest)
        return node

    def _count(self, event: yaml.Event, measure: _Measure) -> None:
        self._nodes += measure.nodes
        self._deepest = max(self._deepest, self._depth + measure.height)
        if self._deepest > MAX_DEPTH:
            _refuse(event, self._file, f"it is nested more than {MAX_DEPTH} levels deep")
        if self._nodes > MAX_NODES:
            _refuse(event, self._file, f"it has more than {MAX_NODES:,} values and names, aliases included")


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != f"{_TAG}timestamp"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Resolver(yaml.resolver.Resolver):
    """Says which tag a scalar has without an explicit one."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


_RESOLVER = _Resolver()


class Document(NamedTuple):
    """The values of a document, and the lines on which they stand."""

    value: Any
    node: yaml.Node | None

    def line_of(self, path: Iterable[str | int]) -> str:
        """ " line 3", of the value at this path, or of what it is missing from; "" for a document of no text."""
        node = self._at(path) or self.node
        return "" if node is None else _line(node)

    def remedy(self, path: Iterable[str | int]) -> str:
        """Explains how to write the value at this path so that it is a string; "" if it is one, or no scalar."""
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
        loader = _Loader(text, file)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        said = f"the character {error.character:#06x} is not allowed"
        raise Misuse(f"{file} line {line}: it is not YAML: {said}") from None
    try:
        return list(_documents(loader, file))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line if mark else loader.line
        said = ", ".join(filter(None, (error.context, error.problem)))
        raise Misuse(f"{file} line {line + 1}: it is not YAML: {said}") from None
    except (ValueError, OverflowError):
        said = "an escape names a character beyond the last one of Unicode, or a directive has a number too large"
        raise Misuse(f"{file} line {loader.line + 1}: it is not YAML: {said}") from None


def _documents(loader: _Loader, file: str) -> Iterator[Document]:
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                _check(node, file, set())
                yield Document(loader.construct_document(node), node)
    finally:
        loader.dispose()


def _check(node: yaml.Node, file: str, seen: set[int]) -> None:
    """`seen`: the ids of the nodes that are right.  Raises Misuse."""
    if id(node) in seen:
        return
    if node.tag not in _ALLOWED:
        _refuse(node, file, f"it has the tag {node.tag[:_SHOWN]}; a declaration has only what JSON has")
    if isinstance(node, yaml.ScalarNode):
        _check_scalar(node, file)
    elif isinstance(node, yaml.MappingNode):
        _check_names(node, file)
        for _, value in node.value:
            _check(value, file, seen)
    else:
        for value in node.value:
            _check(value, file, seen)
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
        key.value = _joined(key, file)
        if key.value in names:
            _refuse(key, file, f"{key.value[:_SHOWN]!r} is given twice")
        names.add(key.value)


def _check_scalar(node: yaml.ScalarNode, file: str) -> None:
    shown, kind = node.value[:_SHOWN], node.tag.removeprefix(_TAG)
    if kind == "str":
        node.value = _joined(node, file)
        return
    resolved = _RESOLVER.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
    if kind in _KINDS and node.tag != resolved:
        _refuse(node, file, f"{shown!r} is not {_kind(node)}, which its tag says it is")
    pattern = _DECIMAL.get(node.tag)
    if pattern is not None and not pattern.fullmatch(node.value):
        _refuse(
            node,
            file,
            f"{shown} is a number that not all read alike; write a decimal one, or quote it: {_quoted(node)}",
        )
    if pattern is not None and (len(node.value) > _MAX_DIGITS or math.isinf(float(node.value))):
        _refuse(node, file, f"the number {shown} has more than {_MAX_DIGITS} digits, or is out of range")


def _kind(node: yaml.ScalarNode) -> str:
    return _KINDS[node.tag.removeprefix(_TAG)]


def _quoted(node: yaml.ScalarNode) -> str:
    return f'"{node.value[:_SHOWN]}"'


def _joined(node: yaml.ScalarNode, file: str) -> str:
    """A text in which escapes of JSON stand for one character by two surrogates, as UTF-16 does."""
    text: str = node.value
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        _refuse(node, file, f"{text[:_SHOWN]!r} has half of a pair of surrogates")


def _line(node: yaml.Node | yaml.Event) -> str:
    mark: Any = node.start_mark
    return f" line {mark.line + 1}"


def _refuse(node: yaml.Node | yaml.Event, file: str, what: str) -> NoReturn:
    raise Misuse(f"{file}{_line(node)}: {what}")
