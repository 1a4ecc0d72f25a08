"""What an action is: the call that it makes, the fields of its form, and the words of its page.

The page of an action is "/console/" followed by the name of the resource, ":" and a verb, as its call is.  The
parameters of its URL fill in the form, so a prepared action can be sent to somebody as a link.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from broker.client.stop import Misuse
from broker.console.actions import reading
from broker.console.page import Block

Json = dict[str, Any]
Values = Mapping[str, Any]  # what was typed, read by the fields; a field that was left empty is absent

Kind = Literal["text", "area", "time", "choice", "check"]
CURRENT = "current"  # among the values of an action that reads: the answer to what it reads


class Weight(StrEnum):
    """The amount that an action can lose, which decides what its page asks for.

    REVERSIBLE: it can be taken back.  BOUNDED: it touches a number of messages, which the button names.  LOSSY:
    something is gone afterwards, so the id of the resource has to be typed.
    """

    REVERSIBLE = "reversible"
    BOUNDED = "bounded"
    LOSSY = "lossy"


class FieldError(ValueError):
    """A field whose text cannot be read: `field` is its name, and the text says the rule."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a form.  `name`: also that of the URL's parameter.

    `read` makes its value of a text and the label, or raises Misuse; not that of a "time" or a "check" box.
    """

    name: str
    label: str
    kind: Kind = "text"
    help: str = ""
    placeholder: str = ""
    choices: Sequence[tuple[str, str]] = ()  # value and label
    required: bool = False
    read: Callable[[str, str], Any] = reading.text
    default: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The resource of an action.  `parts`: the ids of its path; `name`: its full name; `id`: the last of them."""

    parts: Mapping[str, str]
    name: str

    @property
    def project(self) -> str:
        """The full name of its project."""
        return f"projects/{self.parts['project']}"

    @property
    def id(self) -> str:
        return self.name.rsplit("/", 1)[-1]

    @property
    def kind(self) -> str:
        """The kind of resource in words, such as "topic"."""
        return self.name.rsplit("/", 2)[-2].removesuffix("s")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the API: `path` is below "/v1/"."""

    method: str
    path: str
    body: Json = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A sentence about what an action has done, in the past tense.  `path`: below /console/, of the page to go to.

    `undo`: the page of the action that takes it back, perhaps with the fields of its form after "?" ("": none).
    `undo_until`: for how long it works ("": always).
    """

    text: str
    path: str
    undo: str = ""
    undo_until: str = ""


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that the API returns once, such as a new key.

    `help`: what it is for.  `is_path`: it follows the address of the broker.
    """

    text: str
    title: str
    help: str
    is_path: bool = False


class Change(NamedTuple):
    """A line of what an action changes.  `sign`: "+" (comes), "-" (goes), or " " (stays)."""

    sign: str
    text: str


class Note(NamedTuple):
    """A sentence about what an action would meet.  `name`: of the resource that it links to ("": none).

    `is_refusal`: the API would refuse the action.
    """

    text: str
    name: str = ""
    is_refusal: bool = False


def reading_itself(target: Target, _: Mapping[str, str]) -> Call:
    """Make a GET of the resource."""
    return Call("GET", target.name)


def itself(target: Target) -> str:
    """Return the name of the resource."""
    return target.name


def project_of(target: Target) -> str:
    """Return the name of the project, on which permissions on what has no policy of its own are needed."""
    return target.project


def above(target: Target) -> str:
    """Return the name of what the resource is in."""
    return target.name.rsplit("/", 2)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action on a resource.

    `on`: the path of the resource's page, with a name in braces for each id.  `verb`: follows it after ":".
    `rpc`: the method that the call is, as the API specification names it.  `permission`: without which the action
    is not offered.  `label`: on the button, with "{count}" where the preview's number goes.  `has_preview`: the
    call takes `validateOnly`, `asOf`, `expectedCount` and `tolerancePercent`; a DELETE in its query.  `applies`:
    whether it is offered for a page's data.  `command`: a `broker` command that does the same ("": there is none).
    `reads`: the call that says how things are now, if the texts of the form name what it needs.  `initial`: what
    the form has at first, made from its answer.  `changes`: the lines that would change, made from its answer; the
    call finds the answer among its values (CURRENT), and an etag in it is the one that the page has shown.
    `asks`: calls that only read, by names for `notes`, which makes sentences of the values and the answers.
    `version`: what `reads` returns has another one after each change ("": it has none).  `templates`: the call that
    lists the templates which the form can be filled from, by the field "template".  `may_do_without`: the answer,
    which viewers may not be permitted to see; it is absent then.  `secret`: the part of the API's answer that is
    shown once, in place of a receipt.  `at_once`: it needs no form, so pages have a button that does it.
    `needed_on`: the resource that the permission is needed on; "": above projects.  `page`: where the form leads
    back to.
    """

    on: str
    verb: str
    rpc: str
    permission: str
    title: str
    label: str  # of the button; {count} is that of the preview, with its unit
    call: Callable[[Target, Values], Call]
    receipt: Callable[[Target, Values, Json], Receipt]
    command: Callable[[Target, Values], str]
    help: str = ""
    weight: Weight = Weight.REVERSIBLE
    fields: Sequence[Field] = ()
    has_preview: bool = False
    applies: Callable[[Mapping[str, Any]], bool] = lambda _: True
    reads: Callable[[Target, Mapping[str, str]], Call | None] = reading_itself
    initial: Callable[[Json], Mapping[str, str]] | None = None
    changes: Callable[[Json, Values], Sequence[Change]] | None = None
    asks: Callable[[Target, Values], Mapping[str, Call]] | None = None
    notes: Callable[[Values, Mapping[str, Block]], Sequence[Note]] = lambda _values, _answers: ()
    version: Callable[[Json], str] = lambda current: current.get("etag", "")
    templates: Callable[[Target], Call] | None = None
    may_do_without: bool = False
    secret: Callable[[Target, Values, Json], Secret] | None = None
    at_once: bool = False
    needed_on: Callable[[Target], str] = itself
    page: Callable[[Target], str] = itself
    can_be_undone: Callable[[Values], bool] = lambda _: False  # a lossy one that need not be confirmed
    shown_on: Sequence[str] = ("",)  # below `on`: the pages that have a button for it

    @property
    def path(self) -> str:
        return f"{self.on}:{self.verb}"

    def read(self, texts: Mapping[str, str], now: datetime) -> Values:
        """Return the values of the form's fields.  Raises FieldError."""
        values: dict[str, Any] = {}
        for each in self.fields:
            text = texts.get(each.name, "")
            text = text.replace("\r\n", "\n") if each.kind == "area" else text.strip()
            if not text:
                if each.required:
                    raise FieldError(each.name, f"{each.label} is needed.")
                continue
            try:
                values[each.name] = _value(each, text, now)
            except Misuse as error:
                raise FieldError(each.name, f"{error}.") from None
        return values


def _value(field: Field, text: str, now: datetime) -> Any:
    """Raises Misuse."""
    if field.kind == "time":
        return reading.moment(text, field.label, now)
    return text == "on" if field.kind == "check" else field.read(text, field.label)
