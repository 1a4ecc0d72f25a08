"""Only broker/client/terminal.py writes to the terminal of whoever runs a command, and it escapes what it is
given.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.fixtures.broker import repository

_BUILT_IN = {"print", "input"}
_OF_CLICK = {"clear", "confirm", "echo", "echo_via_pager", "pause", "progressbar", "prompt", "secho"} | {
    "get_binary_stream",
    "get_text_stream",
}
_STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
_WRITERS = {
    "broker/client/terminal.py",
    "broker/features/schemas/checking/apart.py",  # frames, for the broker that started it
    "broker/observability/log.py",  # the log, which escapes by itself
    "broker/features/transforms/sandbox/process.py",  # frames, for the broker that started it
    "broker/version.py",  # the version, when a package is built
}


def _writes(tree: ast.AST) -> Iterator[str]:
    """Whatever could reach a terminal in a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in _BUILT_IN:
                yield name
            case ast.Attribute(value=ast.Name(id="click"), attr=name) if name in _OF_CLICK:
                yield f"click.{name}"
            case ast.Attribute(value=ast.Name(id="sys"), attr=name) if name in _STREAMS:
                yield f"sys.{name}"
            case ast.Call(func=ast.Attribute(attr="print")):  # of a console of rich
                yield ".print"
            case ast.ImportFrom(module="click" | "sys" | "rich", names=names):
                yield from (each.name for each in names if each.name in _OF_CLICK | _STREAMS | _BUILT_IN)


def _module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_one_module_of_the_command_line_writes_to_the_terminal() -> None:
    modules = (repository() / "broker").rglob("*.py")
    found = {str(path.relative_to(repository())) for path in modules if any(_writes(_module(path)))}
    assert found == _WRITERS


def test_the_ways_to_write_are_recognised() -> None:
    ways = (
        "print(x)",
        "click.echo(x)",
        "sys.stderr.write(x)",
        "from click import echo",
        "console.print(x)",
        "input()",
    )
    assert all(any(_writes(ast.parse(way))) for way in ways)
    assert not any(_writes(ast.parse("terminal.write_line(x); sys.stdin.read(); click.option('--x')")))
