"""Operations of clients that act alone on topics and subscriptions of their own (faults/clients/alone.py)."""

from typing import Literal, TypeAlias

from tests.faults.operation import Came, Operation


class Recall(Operation, tag="recall", kw_only=True, omit_defaults=True):
    """One of the things that are done to a subscription by one alone, one after the other: messages were written,
    came, or were acked (if it was in time), resent, purged if they were `marked`, sought to the begin and back, or
    replayed for an endpoint; or nothing was left.  `unanswered`: so many tries before that may have done it, too.
    """

    what: Literal[
        "wrote", "took", "acked", "maybe acked", "resent", "purged", "sought", "undone", "replayed", "left"
    ]
    ids: list[int] = []
    marked: list[int] = []
    outcomes: dict[str, str] = {}
    counts: dict[str, int] = {}
    unanswered: int = 0


class Recovery(Operation, tag="recovery", kw_only=True, omit_defaults=True):
    """One of the things that are done to a subscription that gives up all that it has, by one alone: messages were
    written, taken, or acked (if it was in time); all was given up, and it was looked what there is; that came back,
    or was sent to another topic, as `counts` have it; or nothing was left, and so much had come of what was sent.
    """

    what: Literal["wrote", "took", "acked", "maybe acked", "gave up", "recovered", "sent", "left"]
    came: list[Came] = []
    counts: dict[str, int] = {}


class Carried(Operation, tag="carried", kw_only=True, omit_defaults=True):
    """One of the things that are done to two topics by one alone, one after the other: messages of a key were
    written on the one; all that it retains was exported, and that imported into the other; or all of that was read.
    """

    what: Literal["wrote", "moved", "read"]
    format: str = ""
    key: str = ""
    came: list[Came] = []


class Hurried(Operation, tag="hurried", kw_only=True, omit_defaults=True):
    """What one alone does on a topic with levels of urgency: messages of these levels were written, came, were
    acked or nacked, or all come again (sought); or these are dead letters, and nothing is left.
    """

    what: Literal["wrote", "took", "acked", "nacked", "sought", "letters"]
    names: list[str] = []
    levels: list[int] = []


class Filtered(Operation, tag="filtered", kw_only=True, omit_defaults=True):
    """One of the things that are done to a subscription whose filter changes, by one alone, one after the other:
    messages of a `kind` were written, the filter was changed to ask for that `kind` ("": for all), messages came,
    the subscription was sought to the begin, or nothing was left.
    """

    what: Literal["wrote", "changed", "took", "sought", "left"]
    names: list[str] = []
    kind: str = ""


Alone: TypeAlias = Recall | Recovery | Carried | Hurried | Filtered
