"""No private part of a package is used: what has no promise may change with any release of it.

ruff (SLF) sees another object's attributes; this sees what comes by imports and by inheritance.
"""

import ast
import importlib
import inspect
import itertools
import pkgutil
from collections.abc import Iterator
from types import FunctionType

import broker
from tests.fixtures.broker import repository

SOURCES = sorted((repository() / "broker").rglob("*.py"))
MODULES = [name for _, name, _ in pkgutil.walk_packages(broker.__path__, "broker.") if "__main__" not in name]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _is_foreign_inside(name: str) -> bool:
    """`uvicorn.protocols` are classes of uvicorn's own: its seam is what it calls of a protocol."""
    return any(map(_is_private, name.split("."))) or name.startswith("uvicorn.protocols")


def test_no_private_module_or_name_is_imported() -> None:
    imported = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            imported += [f"{path.name}: {name}" for name in names if _is_foreign_inside(name)]
    assert imported == []


def _private_names(cls: type) -> set[str]:
    """Those that a class defines, and those that its methods use of `self`."""
    names = set(vars(cls))
    for value in vars(cls).values():
        for function in (value, getattr(value, "fget", None), getattr(value, "fset", None)):
            if isinstance(function, FunctionType):
                names |= set(function.__code__.co_names)
    return {name for name in names if _is_private(name)} - {"_abc_impl"}  # which ABCMeta puts into each


def _classes(module: str) -> Iterator[type]:
    for value in vars(importlib.import_module(module)).values():
        if inspect.isclass(value) and value.__module__ == module:
            yield value


def test_no_class_shares_private_names_with_one_of_another_package_that_it_derives_from() -> None:
    shared = []
    for cls in itertools.chain.from_iterable(map(_classes, MODULES)):
        for base in cls.__mro__[1:]:
            if base.__module__.partition(".")[0] not in {"broker", "builtins", "typing", "enum"}:
                shared += [(cls, base, name) for name in _private_names(cls) & _private_names(base)]
    assert shared == []
