"""Orders the turns of endpoints: those of urgent subscriptions precede others of their project (J4).

Each endpoint has a place in the queue, which belongs to its project: when its turn comes, an urgent endpoint of the
project takes it.  So projects have as many turns as without urgent subscriptions.  Urgent endpoints have three of
four turns, and the others the fourth, so that none waits for ever.
"""

from collections import deque
from dataclasses import dataclass, field

from broker.core.pushing.endpoint import Endpoint
from broker.fairness.fair_turns import URGENT_TURNS


@dataclass(slots=True)
class _OfProject:
    """`in_a_row`: turns that urgent ones had while others waited."""

    urgent: dict[Endpoint, None] = field(default_factory=dict)
    others: dict[Endpoint, None] = field(default_factory=dict)
    in_a_row: int = 0

    def pop(self) -> Endpoint:
        if self.urgent and (not self.others or self.in_a_row < URGENT_TURNS):
            chosen, self.in_a_row = self.urgent, self.in_a_row + bool(self.others)
        else:
            chosen, self.in_a_row = self.others, 0
        endpoint = next(iter(chosen))
        del chosen[endpoint]
        return endpoint


class UrgentFirst:
    """Endpoints that wait for a turn."""

    def __init__(self) -> None:
        self._row: deque[str] = deque()  # of projects
        self._projects: dict[str, _OfProject] = {}

    def __len__(self) -> int:
        return len(self._row)

    def add(self, endpoint: Endpoint) -> None:
        """Adds an endpoint at the end, unless it waits already."""
        ours = self._projects.setdefault(endpoint.project, _OfProject())
        if endpoint not in ours.urgent and endpoint not in ours.others:
            (ours.urgent if endpoint.subscription.is_urgent else ours.others)[endpoint] = None
            self._row.append(endpoint.project)

    def pop(self) -> Endpoint:
        """Removes the endpoint whose turn it is, and returns it."""
        project = self._row.popleft()
        ours = self._projects[project]
        endpoint = ours.pop()
        if not ours.urgent and not ours.others:
            del self._projects[project]
        return endpoint
