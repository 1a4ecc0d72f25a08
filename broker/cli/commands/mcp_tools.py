"""Commands as tools of the Model Context Protocol: their names, schemas and command lines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from broker.client.stop import Misuse


def _names(text: str) -> frozenset[str]:
    return frozenset(" ".join(name.split()) for name in text.split(","))


# Commands that change nothing.
READING = _names(
    """
    topic list, topic show, topic browse, topic histogram, topic publishers, topic test-filter,
    sub list, sub show, sub consumers, sub position, sub test-filter, snapshot list, snapshot show,
    schema list, schema show, schema revisions, quota show, audit, projects list, search, whoami, events show,
    scheduled list, scheduled show, schedule list, schedule show, schedule next, schedule history,
    events list, mask list, mask show, view list, view show, template list, template show, link list, link show,
    share list, message decode, peek, message show, lag, history,
    fleet processes, fleet database, fleet findings, fleet settings,
    push status, push failures, push attempts, dlq summary, dlq list, dlq show, op list, op show
    """
)

# Commands that change something, which are tools with --write only.
ACTING = _names(
    """
    topic create, topic update, topic delete, topic copy, topic freeze, topic unfreeze,
    sub create, sub update, sub set-filter, sub delete, sub pause, sub resume, sub detach,
    sub release, sub dead-letter,
    snapshot create, snapshot update, snapshot delete, schema rollback, schema delete, schema delete-revision,
    mask create, mask update, mask delete, view create, view update, view delete, template create, template update,
    template delete, link create, link update, link delete, share delete,
    events mark, events set, events off, publish, scheduled move, scheduled cancel,
    schedule create, schedule run, schedule pause, schedule resume, schedule delete,
    push set-endpoint, push pause, push resume, push test, push resend, push recover, push replay-missing,
    seek, purge, message retract, message replace, dlq redrive, dlq discard, dlq edit, op cancel, op delete,
    quota set
    """
)

# Options that a tool does not have: the connection is that of the server, files are those of the machine, and the
# preview and the confirmation are the tool's own.
_HIDDEN = frozenset(
    {
        *(
            "url",
            "credentials",
            "ca_file",
            "context",
            "google_credentials",
            "as_json",
            "yes",
            "dry_run",
            "preview_only",
        ),
        *("file", "data_file", "message_file", "input_", "input", "codec", "format_", "format", "no_wait"),
    }
)
_ACT = "act"
_EXPECTED = "expected_count"


@dataclass(frozen=True, slots=True)
class Tool:
    """A command as a tool.  `words`: of its command line, such as ("sub", "show")."""

    words: tuple[str, ...]
    command: click.Command

    @property
    def name(self) -> str:
        return "_".join(self.words).replace("-", "_")

    @property
    def is_reading(self) -> bool:
        return " ".join(self.words) in READING

    @property
    def has_preview(self) -> bool:
        """Whether the command can say what it would do."""
        return any(each.name == "dry_run" for each in self.command.params)

    @property
    def has_count(self) -> bool:
        """Whether the command can be limited to the count that a preview showed."""
        return any(each.name == _EXPECTED for each in self.command.params)

    @property
    def description(self) -> str:
        said = " ".join((self.command.help or "").split())
        if not self.has_preview:
            return said
        needs = f", with `{_EXPECTED}` set to the count that it said" if self.has_count else ""
        return f"{said} Says what it would do; does it only with `{_ACT}`: true{needs}."

    @property
    def params(self) -> Iterator[click.Parameter]:
        """The parameters that the tool has; an option for a file is not one of them."""
        for each in self.command.params:
            if each.name not in _HIDDEN and not isinstance(each.type, click.File | click.Path):
                yield each

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the tool's arguments."""
        properties = {str(each.name): _schema_of(each) for each in self.params}
        if self.has_preview:
            properties[_ACT] = {"type": "boolean", "default": False, "description": "Do it, and not only say what."}
        return {
            "type": "object",
            "properties": properties,
            "required": [str(each.name) for each in self.params if each.required],
            "additionalProperties": False,
        }

    def command_line(self, given: Mapping[str, Any]) -> list[str]:
        """Return the arguments of `broker` for the arguments of a call.  Raises Misuse."""
        params = {str(each.name): each for each in self.params}
        for name in given:
            if name not in params and not (name == _ACT and self.has_preview):
                raise Misuse(f"{self.name} has no argument {name!r}; it has {', '.join(params)}")
        options, words = list[str](), list[str]()
        for name, param in params.items():
            value = given.get(name)
            if value is None or value is False:
                if param.required:
                    raise Misuse(f"{self.name} needs {name!r}")
                continue
            if isinstance(param, click.Argument):
                words += _texts(value)
            elif getattr(param, "is_flag", False):
                options.append(param.opts[0])
            else:
                options += [f"{param.opts[0]}={text}" for text in _texts(value)]
        return [*self.words, *options, *self._confirmation(given), "--json", "--", *words]

    def _confirmation(self, given: Mapping[str, Any]) -> Sequence[str]:
        if not self.has_preview:
            return ()
        if given.get(_ACT) is not True:
            return ["--dry-run"]
        if self.has_count and given.get(_EXPECTED) is None:
            raise Misuse(
                f"{self.name} acts only with {_EXPECTED!r}: call it without {_ACT!r} first, and give the count "
                "that it says"
            )
        return ["--yes"] if any(each.name == "yes" for each in self.command.params) else ()


def tools_of(root: click.Command, *, writes: bool) -> dict[str, Tool]:
    """Return the tools by their names.  `writes`: also those that change something."""
    wanted = READING | ACTING if writes else READING
    found = (Tool(words, command) for words, command in _leaves(root, ()) if " ".join(words) in wanted)
    return {each.name: each for each in found}


def _leaves(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is not None:
            yield from _leaves(below, (*words, name))


def _schema_of(param: click.Parameter) -> dict[str, Any]:
    one: dict[str, Any]
    if getattr(param, "is_flag", False):
        one = {"type": "boolean"}
    elif isinstance(param.type, click.Choice):
        one = {"type": "string", "enum": list(param.type.choices)}
    elif isinstance(param.type, click.types.FloatParamType):
        one = {"type": "number"}
    elif isinstance(param.type, click.types.IntParamType):
        one = {"type": "integer"}
    else:
        one = {"type": "string"}
    if param.multiple or param.nargs == -1:
        one = {"type": "array", "items": one}
    said = getattr(param, "help", None)
    return one | ({"description": " ".join(said.split())} if said else {})


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else [str(value)]
