"""What a feature adds to a broker process.

Each feature has a `feature.py` with one function `register`, which builds the parts of the feature and returns a
Feature.  `broker/app/features.py` lists the features in order.  The core does not import features: it runs what
they register.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.routing import Route

from broker.api.row import Row
from broker.core.process.supervisor import Worker
from broker.core.retention.retention_janitor import CleanUp


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The parts of a feature; each is optional.

    `rpcs`: the rows of its calls.  `workers`: its background work, by the names that the log uses.  `clean_ups`:
    what the janitor runs at the end of each pass.

    `begin` runs before the first call, and again while the database is away.  `stop` runs once the workers have
    ended.  `resource_changed(name)` is called when a resource has changed, in any process (None: any may have).
    `outbox_committed` is called when an application has committed a transaction with messages or acks.

    `pages` are HTTP pages beside the API.  `metrics_pages` are served on the port for metrics, where callers need
    no permission.
    """

    rpcs: Sequence[Row] = ()
    workers: Mapping[str, Worker] = field(default_factory=dict)
    clean_ups: Sequence[CleanUp] = ()
    begin: Callable[[], Awaitable[object]] | None = None
    stop: Callable[[], None] | None = None
    resource_changed: Callable[[str | None], None] | None = None
    outbox_committed: Callable[[], None] | None = None
    pages: Sequence[Route] = ()
    metrics_pages: Sequence[Route] = ()
