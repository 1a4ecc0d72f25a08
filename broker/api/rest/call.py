"""A REST call, as a handler sees it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.access.policies.authorizer import Required
from broker.access.principals.caller import ANONYMOUS, Caller
from broker.api.gate import Gate
from broker.api.limits.answer_memory import AnswerMemory
from broker.api.permissions import NOTHING, Needs
from broker.api.rest.body import LargeBody
from broker.api.steps import R, Steps
from broker.fairness.loop_turns import LoopTurns
from broker.model.names import project_within
from broker.net.http1.exchange import Exchange

_SECONDS = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{0,9})?")


@dataclass(slots=True)
class Call:
    """`name` is the resource that the path names, decoded once: "projects/p/topics/t", or the parent of a
    collection.  `query` has one value for each parameter.  `body` is decompressed.  An answer that is sent in parts
    counts in `answers`.  `caller` is ANONYMOUS where authentication is off.
    """

    loop_turns: LoopTurns
    name: str
    query: Mapping[str, str]
    body: bytes
    exchange: Exchange
    answers: AnswerMemory
    caller: Caller = ANONYMOUS
    gate: Gate | None = None
    large: LargeBody | None = None
    # The needs that were checked.  A handler that checks the permissions of a waiting call itself sets this.
    required: Sequence[Required] = ()
    needs: Needs = NOTHING  # of the call, if there is a gate
    is_preview: bool = False  # the handler sets this if `validateOnly` was given, and so nothing was changed

    def hold(self, size: int) -> None:
        """Count so many bytes more, unpacked from the body, until the call is answered.  Raises the refusal."""
        if self.large is not None:
            self.large.take(size)

    async def in_steps(self, steps: Steps[R]) -> R:
        """Runs work that takes the event loop for long, each step in a turn of the call's project.

        Returns its result.
        """
        return await self.loop_turns.run(project_within(self.name), steps)

    async def turn_to_read(self) -> None:
        """Waits for a turn before a long body is read, if other projects wait."""
        turns, project, size = self.loop_turns, project_within(self.name), len(self.body)
        if not turns.begin(project, size):
            await turns.wait(project, size)

    @property
    def update_mask(self) -> str | None:
        """The update mask, where it is given as a query parameter; in both spellings it is one list."""
        given = [self.query[name] for name in ("updateMask", "update_mask") if name in self.query]
        return ",".join(given) if given else None

    def seconds_left(self) -> float | None:
        """Returns how many seconds the caller waits for the answer; None: it does not say.

        X-Server-Timeout, in seconds: "timeout for the server to finish processing the request", one of the system
        parameters of Google's APIs (https://cloud.google.com/apis/docs/system-parameters).  A value that is no
        number is ignored.
        """
        given = next((value for name, value in self.exchange.head.headers if name == b"x-server-timeout"), b"")
        return float(given) if _SECONDS.fullmatch(given) else None
