"""Statements in files: <name>.sql beside the module that runs it, loaded by name at import.

The text that PostgreSQL prepares and logs has no comments.  A hot statement declares the types of its parameters in
the comment `-- parameters: shard_id int8, now timestamptz`; they are sent in binary.  It declares the columns of
its rows in the comment `-- columns: shard_id, head`; rows are named tuples of these.

A statement that Citus does not run, or runs slowly, on distributed tables has a second form, which is a second file
beside the first.  Modules load and send the first.  A connection to distributed tables finds the second by its name
(db/driver/forms.py, db/driver/named.py):

* `<name>.citus.sql` is another text with the same parameters and columns.  If it has the comment
  `-- for one of: subscription_ids`, it is used where that array has one element.  Its parameters are then named in
  the singular, and take the only element of each array.
* the module `<name>_citus` has a function `<name>` that sends other statements and returns the same rows.
"""

import re
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from broker.db.citus.two_phases import parts_written
from broker.db.driver.binary import ENCODERS, OIDS

_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_PARAMETERS = re.compile(r"^-- parameters: ((?:.+)(?:\n--     .+)*)$", re.MULTILINE)
_ROW_LOCKS = re.compile(r"^FOR UPDATE(?: OF \w+)?$", re.MULTILINE)
_COLUMNS = re.compile(r"^-- columns: ((?:.+)(?:\n--     .+)*)$", re.MULTILINE)
_FOR_ONE_OF = re.compile(r"^-- for one of: (\w+)$", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Statement:
    """A prepared statement: its name, its text with $1, $2, …, and the names and types of those.

    `columns` are the names of what its rows have, in their order; none: its rows are plain tuples.  `file` is the
    name of the file that it was made of.
    """

    name: bytes
    text: bytes
    parameters: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] = ()
    file: str = ""

    @cached_property
    def type_oids(self) -> list[int]:
        return [OIDS[type_name.removeprefix("packed ")] for _, type_name in self.parameters]

    @cached_property
    def encoders(self) -> Sequence[tuple[str, Callable[[Any], bytes | None] | None]]:
        """The encoder of each parameter, by name; None: the parameter is passed in its binary form."""
        return [(name, ENCODERS[type_name]) for name, type_name in self.parameters]

    @cached_property
    def make_row(self) -> Callable[[Sequence[Any]], Any]:
        """A row from its values."""
        if not self.columns:
            return tuple
        row: Any = namedtuple("Row", self.columns)  # type: ignore[misc]  # of what types, PostgreSQL knows
        return partial(tuple.__new__, row)  # like its _make, but implemented in C

    @cached_property
    def parts_written(self) -> int:
        return parts_written(self.text.decode())

    @cached_property
    def citus_statement(self) -> "CitusStatement | None":
        """The statement that replaces it on distributed tables, if that is one."""
        name = self.name.decode()
        if name != self.file or f"{name}.citus.sql" not in _files():
            return None
        text = _read(f"{name}.citus")
        statement = hot_statement(f"{name}.citus", text)
        found = _FOR_ONE_OF.search(text)
        arrays = tuple(parameter for parameter, type_ in self.parameters if type_.endswith("[]"))
        return CitusStatement(statement, found[1] if found else "", arrays)

    @cached_property
    def citus_function(self) -> Callable[..., Any] | None:
        """The function that runs other statements in its place on distributed tables, if there is one."""
        return citus_function(self.name.decode(), file=self.file)


@dataclass(frozen=True, slots=True)
class CitusStatement:
    """`one_of`: the array of which there has to be one element ("": it replaces the other statement always).
    `arrays`: the parameters of that statement that are arrays.
    """

    statement: Statement
    one_of: str
    arrays: Sequence[str]

    def bound(self, given: dict[str, Any]) -> tuple[Statement, dict[str, Any]] | None:
        """Returns the statement, with the parameters of the one that it replaces; None: it does not replace it."""
        if not self.one_of:
            return self.statement, given
        if len(given[self.one_of]) != 1:
            return None
        single = {name.removesuffix("s"): given[name][0] for name in self.arrays}
        return self.statement, {name: value for name, value in given.items() if name not in self.arrays} | single


class Text(str):
    """The text of a statement that is not hot, with psycopg's placeholders, and the name of its file."""

    name: str


@cache
def _files() -> Mapping[str, Traversable | str]:
    """Returns the statements by name, which is unique: texts, and the names of modules that have second forms."""
    found: dict[str, Traversable | str] = {}
    folders = [("broker", files("broker"))]
    while folders:
        package, folder = folders.pop()
        for each in folder.iterdir():
            if each.name.endswith(".sql"):
                found[each.name] = each
            elif each.name.endswith("_citus.py"):
                found[each.name] = f"{package}.{each.name.removesuffix('.py')}"
            elif each.is_dir() and each.name not in {"__pycache__", "_shipped"}:
                folders.append((f"{package}.{each.name}", each))
    return found


def _read(name: str) -> str:
    file = _files().get(f"{name}.sql")
    if file is None or isinstance(file, str):
        raise FileNotFoundError(f"There is no {name}.sql in broker/.")
    return file.read_text(encoding="utf-8")


def citus_function(name: str, *, file: str) -> Callable[..., Any] | None:
    """The function `name` in the module <file>_citus, beside <file>.sql; None: there is none."""
    module = _files().get(f"{file}_citus.py")
    found: Callable[..., Any] | None = (
        getattr(import_module(module), name, None) if isinstance(module, str) else None
    )
    return found


@cache
def citus_text(name: str) -> Text | None:
    """The text of <name>.citus.sql; None: there is none."""
    return load(f"{name}.citus") if f"{name}.citus.sql" in _files() else None


def _without_comments(text: str) -> str:
    lines = (line.split("--", 1)[0].rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def load(name: str) -> Text:
    """The text of <name>.sql, with psycopg's placeholders: for what is not hot.

    In a resource transaction it runs by `exec_driver_sql`; if it has a second form, by `fetch` or `change`
    (db/driver/named.py).  Raises FileNotFoundError for an unknown name.
    """
    text = Text(_without_comments(_read(name)))
    text.name = name
    return text


@cache
def hot(name: str) -> Statement:
    """<name>.sql as a statement for HotConnection.run; the same one for every caller.

    Raises FileNotFoundError for an unknown name, ValueError unless exactly the parameters of the text are declared.
    """
    return hot_statement(name, _read(name))


@cache
def hot_of(name: str, table: str, other: str) -> Statement:
    """`hot`, about another table that has the same columns.

    Raises FileNotFoundError for an unknown name, ValueError if the statement is not about `table`.
    """
    text = _read(name)
    if table not in _without_comments(text):
        raise ValueError(f"{name}.sql says nothing of {table}")
    return hot_statement(f"{name}_of_{other}", text.replace(table, other))


@cache
def hot_without(name: str, part: str, answer: str) -> Statement:
    """`hot`, without its last common table expression and with another answer, for where the two cannot be one.

    Raises FileNotFoundError for an unknown name, ValueError if it has no such part.
    """
    before, found, _ = _read(name).partition(f",\n{part} AS (")
    if not found:
        raise ValueError(f"{name}.sql has no {part}")
    return hot_statement(f"{name}_without_{part}", f"{before}\n{answer}")


@cache
def hot_unlocked(name: str) -> Statement:
    """`hot`, without its row locks: what only reads asks the same question.

    Raises FileNotFoundError for an unknown name, ValueError if the statement locks nothing.
    """
    text, found = _ROW_LOCKS.subn("", _read(name))
    if not found:
        raise ValueError(f"{name}.sql locks no rows")
    return hot_statement(f"{name}_unlocked", text, file=name)


def hot_statement(name: str, text: str, *, file: str = "") -> Statement:
    """`hot`, from a text."""
    types = dict(part.split(" ", 1) for part in _listed(_PARAMETERS, text))
    plain = _without_comments(text)
    used = set(_PLACEHOLDER.findall(plain))
    if used != types.keys() or not set(types.values()) <= ENCODERS.keys():
        raise ValueError(f"{name}.sql uses the parameters {sorted(used)} and declares {types}")
    numbers = {parameter: number for number, parameter in enumerate(types, 1)}
    numbered = _PLACEHOLDER.sub(lambda match: f"${numbers[match[1]]}", plain)
    return Statement(
        name=name.encode(),
        text=numbered.encode(),
        parameters=tuple(types.items()),
        columns=tuple(_listed(_COLUMNS, text)),
        file=file or name,
    )


def _listed(comment: re.Pattern[str], text: str) -> list[str]:
    """Returns the items that a comment of the text lists, over one line or several."""
    found = comment.search(text)
    return [part.strip() for part in found[1].replace("\n--     ", " ").split(",")] if found else []


BEGIN = Statement(b"begin", b"BEGIN")
COMMIT = Statement(b"commit", b"COMMIT")
ROLLBACK = Statement(b"rollback", b"ROLLBACK")
# Ends a transaction that has taken locks and changed nothing: a row lock alone makes a commit wait for the disk.
NO_WAIT = Statement(b"no_wait", b"SET LOCAL synchronous_commit = off")
