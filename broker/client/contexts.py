"""Named contexts: a server, a project and credentials, in a file that only its user can read."""

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from broker.client.files import MAX_KEY_BYTES
from broker.client.json_text import parse_json
from broker.client.private_file import write_private_file
from broker.client.stop import Misuse, Stop
from broker.model.errors import os_reason

_FIELDS = ("url", "project", "credentials", "ca_file")


@dataclass(frozen=True, slots=True)
class Context:
    """`credentials` is what --credentials takes: the path of a key file, or an API key."""

    url: str = ""
    project: str = ""
    credentials: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts by name; `current` is the one in use, "" for none."""

    current: str = ""
    named: dict[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        """Raises Misuse."""
        if name not in self.named:
            there = ", ".join(sorted(self.named)) or "there is none yet"
            raise Misuse(f"there is no context {name!r} ({there}); `broker context set {name}` makes it")
        return self.named[name]

    def with_one(self, name: str, context: Context) -> "Contexts":
        """The first one is in use from then on."""
        return Contexts(self.current or name, self.named | {name: context})

    def without(self, name: str) -> "Contexts":
        rest = {other: context for other, context in self.named.items() if other != name}
        return Contexts("" if self.current == name else self.current, rest)

    def using(self, name: str) -> "Contexts":
        return replace(self, current=name)


def contexts_file() -> Path:
    """Returns the file of contexts, in the directory where the user's programs keep such files."""
    return Path(click.get_app_dir("pubsub-broker")) / "contexts.json"


def read_contexts() -> Contexts:
    """Reads the contexts.  Raises Misuse for a file that is malformed."""
    path = contexts_file()
    try:
        with path.open("rb") as opened:
            held = parse_json(opened.read(MAX_KEY_BYTES))
        named = {str(name): _context(one) for name, one in held["contexts"].items()}
        return Contexts(str(held.get("current", "")), named)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {os_reason(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Misuse(f"{path} is not as `broker context set` writes it; mend it, or delete it") from None


def write_contexts(contexts: Contexts) -> Path:
    """Returns where.  Raises Stop."""
    path = contexts_file()
    named = {name: {key: text for key, text in asdict(one).items() if text} for name, one in contexts.named.items()}
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private_file(
            path, json.dumps({"current": contexts.current, "contexts": named}, indent=2) + os.linesep
        )
    except OSError as error:
        raise Stop(f"{path} cannot be written: {os_reason(error)}") from error
    return path


def _context(held: Any) -> Context:
    return Context(**{name: str(held[name]) for name in _FIELDS if name in held})
