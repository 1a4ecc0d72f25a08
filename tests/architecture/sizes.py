"""`make sizes`: a report of long files, long functions and large folders.  Sizes are hints, not limits."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_FILE_LINES, _FUNCTION_LINES, _FOLDERS = 400, 40, 10
_ROOT = Path(__file__).parents[2]


def _report() -> Iterator[str]:
    modules = sorted((_ROOT / "broker").rglob("*.py"))
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in modules}
    yield f"{len(modules):,} modules of {sum(lines.values()):,} lines"
    yield f"\nFiles over {_FILE_LINES} lines:"
    yield from (f"{count:6}  {_name(path)}" for path, count in lines.items() if count > _FILE_LINES)
    yield f"\nFunctions over {_FUNCTION_LINES} lines:"
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > _FUNCTION_LINES:
                    yield f"{length:6}  {_name(path)}:{node.lineno} {node.name}"
    yield "\nLargest folders, by entries:"
    sources = (path for path in (_ROOT / "broker").rglob("*") if path.suffix in (".py", ".sql"))
    folders = Counter(path.parent for path in sources)
    yield from (f"{count:6}  {_name(path)}" for path, count in folders.most_common(_FOLDERS))


def _name(path: Path) -> str:
    return str(path.relative_to(_ROOT))


if __name__ == "__main__":
    print("\n".join(_report()))
