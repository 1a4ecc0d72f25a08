"""The results of a search, and the position where it continues."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from broker.model.errors import InvalidArgument
from broker.model.page import check_page_size, invalid_page_token, parse_page_token

MAX_TEXT = 256  # characters
MAX_EXAMINED = 20_000  # rows that a call compares with the text; the next page goes on behind them


class ResultKind(StrEnum):
    """The kinds of results, in the order in which results are returned."""

    MESSAGE = "MESSAGE"
    TOPIC = "TOPIC"
    SUBSCRIPTION = "SUBSCRIPTION"
    SNAPSHOT = "SNAPSHOT"
    SCHEMA = "SCHEMA"
    SCHEDULE = "SCHEDULE"
    OPERATION = "OPERATION"
    SERVICE_ACCOUNT = "SERVICE_ACCOUNT"
    API_KEY = "API_KEY"
    ROLE = "ROLE"
    POLICY = "POLICY"


class Result(NamedTuple):
    """A resource, message or policy that was found.

    `name`: the name of the resource; of a policy, the resource that has it.  `field`: the field that contains the
    text; `value`: the value of that field.
    """

    kind: ResultKind
    name: str
    field: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The resources of a project that a caller may find.

    `names`: by each kind that is searched, the full names that may be found (None: all).  `policies_of`: the
    collections whose policies are searched; "" is the policy of the project itself.
    """

    project: str
    names: Mapping[ResultKind, Collection[str] | None]
    policies_of: Collection[str]

    @property
    def kinds(self) -> Sequence[ResultKind]:
        return [kind for kind in ResultKind if kind in self.names]


class Step(NamedTuple):
    """A part of a search.

    `is_exact`: it finds the resource whose id or name is the text; otherwise it finds resources that contain the
    text.
    """

    kind: ResultKind
    is_exact: bool


STEPS = (
    *(Step(kind, is_exact=True) for kind in ResultKind if kind is not ResultKind.POLICY),
    *(Step(kind, is_exact=False) for kind in ResultKind if kind is not ResultKind.MESSAGE),
)


class SearchPage(NamedTuple):
    """A page of a search: at most `size` results.

    It has the results of STEPS[step] with keys greater than `after`, and then those of the later steps.
    """

    size: int
    step: int = 0
    after: str = ""


def parse_search_page(size: int, token: str) -> SearchPage:
    """Raises InvalidArgument."""
    size = check_page_size(size)
    if not token:
        return SearchPage(size)
    step, after = parse_page_token(token, int, str)
    if not 0 <= step < len(STEPS) or "\0" in after:
        raise invalid_page_token(token)
    return SearchPage(size, step, after)


def parse_kinds(text: str) -> Collection[ResultKind]:
    """Returns the kinds that a list such as "TOPIC,POLICY" names; of "" all.  Raises InvalidArgument."""
    if not text:
        return frozenset(ResultKind)
    known = {kind.value: kind for kind in ResultKind}
    unknown = [name for name in text.split(",") if name not in known]
    if unknown:
        raise InvalidArgument(f"kinds has {unknown[0][:100]!r}, which is no kind; these are: {', '.join(known)}.")
    return frozenset(known[name] for name in text.split(","))


def parse_text(text: str) -> str:
    """Returns the text to search for, without surrounding space.  Raises InvalidArgument."""
    text = text.strip()
    if not text:
        raise InvalidArgument("q must be given: a part of a name, a label or a principal, or a message id (q=).")
    if len(text) > MAX_TEXT:
        raise InvalidArgument(f"q has {len(text)} characters; {MAX_TEXT} are the most.")
    if "\0" in text:
        raise InvalidArgument("q has the character U+0000.")
    return text
