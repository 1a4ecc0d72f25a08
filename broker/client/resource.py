"""The commands that nouns have in common: `list`, `create`, `show`, `update`, `delete`, methods such as `pause`.

`broker/cli/resources.py` has a row for each noun with what is its own: texts, columns, options.  A command that no
verb of this module can express is a function with `@calling`, which the row lists among its commands.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import click

from broker.client.api import Api, Json
from broker.client.calling import Session, params_of, server_command
from broker.client.command_line import Group
from broker.client.confirming import YES, Loss, confirm, confirm_loss
from broker.client.connection import full_name
from broker.client.output import Shown
from broker.client.safeguards import SAFEGUARDS, as_parameters, shown_preview, taken
from broker.client.stop import Misuse
from broker.client.updates import update_resource
from broker.client.words import leaf

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]  # click.option(…), click.argument(…)
Given = dict[str, Any]  # what a command was given, by the names of its parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The columns of a list, by their names: how each is read from a resource.  For the rest see `Shown`."""

    columns: Mapping[str, Callable[[Json], str]]
    whole: Sequence[str] = ()
    cut: Sequence[str] = ()
    minor: Sequence[str] = ()

    def shown(self, found: Sequence[Json], *, data: Any = None, nothing: str = "") -> Shown:
        """Lays out what was found; for programs it is `data`, if that is given."""
        return Shown(
            data=found if data is None else data,
            columns=tuple(self.columns),
            rows=[[read(one) for read in self.columns.values()] for one in found],
            whole=self.whole,
            cut=self.cut,
            minor=self.minor,
            nothing=nothing,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A noun of the command line.

    A command that is about one resource takes `arguments`, by default one that is called as the noun.  `path` makes
    the resource's full name of them.  Within `guessing` a server's answer that there is none becomes an error that
    names what is like it.
    """

    noun: str  # as requests and sentences call it: "subscription"
    collection: str  # "subscriptions"
    help: str
    commands: Sequence["Verb | click.Command"]  # in the order of the help
    arguments: Sequence[Decorator] = ()
    path: Callable[..., str] | None = None
    guessing: Callable[..., AbstractContextManager[None]] | None = None

    def group(self, name: str) -> Group:
        """The noun with its commands, called `name` on the command line."""
        commands = [one.command(self) if isinstance(one, Verb) else one for one in self.commands]
        return Group(name, help=self.help, commands=commands)

    def argument_params(self) -> Sequence[click.Parameter]:
        return params(*(self.arguments or [click.argument(self.noun)]))

    def full_name(self, session: Session, words: Given) -> str:
        """Raises Misuse."""
        if self.path is not None:
            return self.path(session, **words)
        return full_name(words[self.noun], self.collection, session.short_project)

    def guessing_names(self, session: Session, words: Given) -> AbstractContextManager[None]:
        return nullcontext() if self.guessing is None else self.guessing(session, **words)


def params(*decorators: Decorator) -> Sequence[click.Parameter]:
    """The parameters that these decorators would give a function."""

    def holder() -> None: ...

    decorated: Callable[..., Any] = holder
    for decorator in reversed(decorators):
        decorated = decorator(decorated)
    return params_of(decorated)


@dataclass(frozen=True, slots=True)
class Verb:
    """A command of a noun.  Texts with {name}, {id}, {noun} and other words are filled in by `_filled`."""

    examples: Sequence[str]
    _: KW_ONLY
    name: str = ""
    help: str = ""
    options: Sequence[Decorator] = ()

    def command(self, resource: Resource) -> click.Command:
        def run(session: Session, **given: Any) -> Shown:
            return self.run(resource, session, given)

        help_ = self.help.replace("{noun}", resource.noun)
        return server_command(self.name, run, params=self.params(resource), help_=help_, examples=self.examples)

    def params(self, resource: Resource) -> Sequence[click.Parameter]:
        return [*resource.argument_params(), *params(*self.options)]

    def run(self, resource: Resource, session: Session, given: Given) -> Shown:
        """Raises Stop."""
        words = {str(one.name): given.pop(str(one.name)) for one in resource.argument_params()}
        return self.run_on(resource, session, words, given)

    def run_on(self, resource: Resource, session: Session, words: Given, options: Given) -> Shown:
        """Runs on the resource that `words`, the noun's arguments, name.  Raises Stop."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class List(Verb):
    """Lists a collection of the project.

    `find` takes the options and finds what is listed, where that is not the whole collection.  `answer_field` is
    what the answer calls the collection, if not by its name.
    """

    name: str = "list"
    help: str = "List the {noun}s of a project."
    table: Table
    nothing: str  # is said of no resources; {session.project} is the project
    answer_field: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    find: Callable[..., list[Json]] | None = None

    def params(self, resource: Resource) -> Sequence[click.Parameter]:
        return params(*self.options)

    def run(self, resource: Resource, session: Session, given: Given) -> Shown:
        if self.find is not None:
            found = self.find(session, **given)
        else:
            path = f"{session.project}/{resource.collection}"
            found = session.api.all_of(path, self.answer_field or resource.collection, dict(self.parameters))
        return self.table.shown(found, nothing=self.nothing.format(session=session))


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(Verb):
    """Creates a resource under the name that was given, with the body that `body` makes of the options."""

    name: str = "create"
    help: str = "Make a {noun}."
    body: Callable[..., Json]
    done: str | Callable[[str, Json], str] = "Created the {noun} {name}."
    then: Callable[[Session, Json, Json], None] | None = None  # takes the body that was sent, and the answer

    def run_on(self, resource: Resource, session: Session, words: Given, options: Given) -> Shown:
        name = resource.full_name(session, words)
        body = self.body(session, **options)
        made = session.api.call("PUT", name, body)
        if self.then is not None:
            self.then(session, body, made)
        return Shown(data=made, line=_filled(self.done, resource, name, words, made))


@dataclass(frozen=True, slots=True, kw_only=True)
class Show(Verb):
    """Shows what GET answers of a resource, or of what is below it at `suffix`.

    `read` reads it in another way; `fields` chooses what people see.
    """

    name: str = "show"
    help: str = "Show a {noun}."
    suffix: str = ""
    read: Callable[[Session, str], Json] | None = None
    fields: Callable[[Json], Json] | None = None

    def run_on(self, resource: Resource, session: Session, words: Given, options: Given) -> Shown:
        with resource.guessing_names(session, words):
            name = resource.full_name(session, words) + self.suffix
            found = self.read(session, name) if self.read is not None else session.api.call("GET", name)
        return Shown(data=found, fields=found if self.fields is None else self.fields(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(Verb):
    """Changes the fields that `body` makes of the options, and sets those of --clear to their defaults."""

    name: str = "update"
    help: str = "Change what is named; the rest stays."
    body: Callable[..., Json]
    options_named: str  # "--retention, --set or --clear": one of them is needed
    then: Callable[[Session, Json, Json], None] | None = None

    def run_on(self, resource: Resource, session: Session, words: Given, options: Given) -> Shown:
        cleared = options.pop("cleared")
        body = self.body(session, **options)
        if not body and not cleared:
            raise Misuse(f"nothing to change: give {self.options_named}")
        name = resource.full_name(session, words)
        changed = update_resource(session.api, name, resource.noun, body, cleared)
        if self.then is not None:
            self.then(session, body, changed)
        return Shown(data=changed, line=f"Changed the {resource.noun} {name}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Verb):
    """Calls a method of a resource, such as `:pause`, with the options as its body.

    Where `question` is given, a terminal is asked before: always, or if any of `losses` is lost.
    """

    done: str | Callable[[str, Json], str]
    method: str = ""  # if it is not the command's name
    question: str = ""
    losses: Callable[[Api, str], Sequence[Loss]] | None = None
    is_safeguarded: bool = False  # it has a dry run

    def params(self, resource: Resource) -> Sequence[click.Parameter]:
        asks = [YES] if self.question else []
        safeguards = SAFEGUARDS if self.is_safeguarded else ()
        return [*resource.argument_params(), *params(*self.options, *safeguards, *asks)]

    def run_on(self, resource: Resource, session: Session, words: Given, options: Given) -> Shown:
        name = resource.full_name(session, words)
        yes = options.pop("yes", False)
        if self.is_safeguarded:
            options |= taken(session.api, options)
        if options.get("validateOnly"):
            with resource.guessing_names(session, words):
                return shown_preview(name, self.send(session.api, name, options))
        if self.question:
            question = _filled(self.question, resource, name, words, {})
            if self.losses is None:
                confirm(question, yes=yes)
            else:
                confirm_loss(question, self.losses(session.api, name), yes=yes)
        with resource.guessing_names(session, words):
            answer = self.send(session.api, name, options)
        return Shown(data=answer, line=_filled(self.done, resource, name, words, answer))

    def send(self, api: Api, name: str, body: Json) -> Json:
        return api.call("POST", f"{name}:{self.method or self.name}", body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(Method):
    """Deletes a resource."""

    name: str = "delete"
    help: str = "Delete a {noun}."
    is_safeguarded: bool = True
    question: str = "Delete the {noun} {name}?"
    done: str | Callable[[str, Json], str] = "Deleted the {noun} {name}."

    def send(self, api: Api, name: str, body: Json) -> Json:
        return api.call("DELETE", name, params=as_parameters(body))


def _filled(
    text: str | Callable[[str, Json], str], resource: Resource, name: str, words: Given, answer: Json
) -> str:
    """Fills in {name}, {id}, {noun}, {parent} (the id of what holds the resource), arguments and the answer."""
    if not isinstance(text, str):
        return text(name, answer)
    parent = leaf(name.rpartition(f"/{resource.collection}/")[0])
    known = answer | words | {"name": name, "id": leaf(name), "noun": resource.noun, "parent": parent}
    return text.format_map(known)
