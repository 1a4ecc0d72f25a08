"""Builds and connects the parts of push delivery in this process."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from broker.access.access import Access
from broker.access.secrets.secrets import Secrets
from broker.access.versions.access_changes import AccessChanges
from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.claiming.claim_scheduler import ClaimScheduler
from broker.core.context.core import Core
from broker.core.process.periodic import PeriodicWorker
from broker.core.process.supervisor import Loop, Worker
from broker.core.pushing.client.http_client import PushClient
from broker.core.pushing.endpoint import Endpoint
from broker.core.pushing.endpoint_incidents import EndpointIncidents
from broker.core.pushing.endpoint_reports import EndpointReports
from broker.core.pushing.endpoints import Endpoints
from broker.core.pushing.health.failing_watch import FailingWatch
from broker.core.pushing.known_origins import KnownOrigins
from broker.core.pushing.pauses import PushPauses
from broker.core.pushing.planner import PushPlanner
from broker.core.pushing.push_counts import PushCounts
from broker.core.pushing.push_history import INTERVAL_SECONDS, PushHistory
from broker.core.pushing.push_log import PushLog
from broker.core.pushing.request.oidc_token import REFRESH_SECONDS, TokenSigner
from broker.core.pushing.sender import PushSender
from broker.core.pushing.settlement import Settlement
from broker.core.pushing.tester import PushTester
from broker.core.pushing.withheld import CHECK_SECONDS, WithheldPushes
from broker.model.delivery import StoredMessage
from broker.model.push_state import PushTest
from broker.model.subscription import Subscription

LOG_INTERVAL_SECONDS = 1.0
GRACE_SECONDS = 2.0  # for requests that are outstanding when the broker stops


class Pusher:
    """`resource_changed` is called by whoever hears of it; `workers` are supervised."""

    def __init__(
        self,
        core: Core,
        *,
        scheduler: ClaimScheduler,
        coalescer: AckCoalescer,
        signer: TokenSigner,
        incidents: EndpointIncidents,
        access: Access | None,
        secrets: Secrets,
        make_client: Callable[[], PushClient],
        failing_after: float,
    ) -> None:
        """`scheduler` claims for pushes alone.  `access` says whose tokens pushes may carry (None: anybody's).
        `secrets` decrypt what signs requests.
        `make_client()` is called when the event loop runs.  `failing_after`: the setting `push_failing_after`.
        """
        self._clock = core.clock
        self._scheduler = scheduler
        self._signer = signer
        self._make_client = make_client
        self._secrets = secrets
        self._counters = core.counters
        self._access, self._failing_after = access, timedelta(seconds=failing_after)
        self._client: PushClient | None = None
        self._log = PushLog(core.database)
        self.history = PushHistory(core.database)
        self._settlement = Settlement(coalescer)
        self._planner = PushPlanner(scheduler, incidents)
        self._pauses = PushPauses(core, not_taken=self._not_paused)
        self._origins = KnownOrigins()
        self._reports = EndpointReports(self._log, incidents, core.clock, self._origins, history=self.history)
        self._withheld = WithheldPushes(core.database, core.wake_ups, why_not=self._why_not)
        if access is not None:
            access.version.after_change(self._check_withheld)
        self._endpoints = self._make_endpoints(core, incidents, secrets)

    def _check_withheld(self, changes: AccessChanges) -> None:
        """Pushes may carry the token of an account that has changed."""
        if changes.credentials is None or changes.credentials:
            self._withheld.check_soon()

    def _make_endpoints(self, core: Core, incidents: EndpointIncidents, secrets: Secrets) -> Endpoints:
        return Endpoints(
            core.database,
            incidents=incidents,
            origins=self._origins,
            withheld=self._withheld,
            secrets=secrets,
            why_no_token=lambda: self._signer.why_none(self._clock.now()),
            owns=core.processes.owns,
            added=self._added,
            removed=self._planner.remove,
            gone=lambda endpoint: self._sender.leave(endpoint),
            watch_of=partial(FailingWatch, self._failing_after),
        )

    def _added(self, endpoint: Endpoint) -> None:
        self._counters.know(endpoint.subscription_id, endpoint.subscription.name)
        self._reports.taken_over(endpoint)
        self._planner.add(endpoint)

    def start(self) -> None:
        """Creates the sender and the tester.  Call this before the workers start, when the signer has its keys."""
        self._client = self._make_client()
        self._planner.sender = self._sender = PushSender(
            client=self._client,
            clock=self._clock,
            settlement=self._settlement,
            reports=self._reports,
            signer=self._signer,
            origins=self._origins,
            counts=PushCounts(self._counters, self.history, self._clock),
            ended=self._planner.ended,
            gone=self._pauses.gone,
            denied=self._pauses.denied,
            why_not=self._why_no_token,
        )
        self._tester = PushTester(
            self._client, self._clock, self._signer, self._secrets, why_not=self._why_no_token
        )

    async def test(self, subscription: Subscription, message: StoredMessage) -> PushTest:
        """Send a message to see what the endpoint answers.  Raises as PushTester.test."""
        return await self._tester.test(subscription, message)

    def workers(self) -> dict[str, Worker]:
        """Returns the workers for the supervisor to run."""
        return {
            "push endpoints": Loop(self._endpoints.run),
            "withheld pushes": PeriodicWorker(self._withheld.run_once, CHECK_SECONDS),
            "push log": PeriodicWorker(self._write_log, LOG_INTERVAL_SECONDS),
            "push history": PeriodicWorker(self.history.flush, INTERVAL_SECONDS),
            "signing keys": PeriodicWorker(self._signer.refresh, REFRESH_SECONDS),
        }

    def resource_changed(self, name: str | None) -> None:
        """Passes on a change of a topic or subscription; None: any of them may have changed."""
        self._endpoints.resource_changed(name)

    async def stop(self) -> None:
        """Ends open requests and writes their outcomes.  Call this after the claims and the workers have ended.

        Raises a BrokerError.
        """
        self._planner.stop()
        if self._client is None:
            return
        try:
            await self._sender.stop(GRACE_SECONDS)
            await self._settlement.close()
            await self._log.flush()
            await self.history.flush()
        finally:
            await self._client.close()

    async def _write_log(self) -> None:
        self._reports.report_waiting(self._endpoints.all())
        self._reports.report_failing(self._endpoints.all())
        self._reports.end_idle(self._endpoints.all())
        self._reports.forget_gone(self._endpoints.all())
        await self._log.flush()

    def _why_no_token(self, subscription: Subscription) -> str | None:
        """Why nothing may be pushed for it, whatever its endpoint's address is."""
        token = subscription.push_config.oidc_token
        if token is None or self._access is None:
            return None
        return self._access.why_not_as(token.service_account_email)

    async def _why_not(self, subscription: Subscription) -> str | None:
        assert self._client is not None
        return self._why_no_token(subscription) or await self._client.denial(subscription.push_config.endpoint)

    def _not_paused(self, endpoint: Endpoint) -> None:
        if self._endpoints.get(endpoint.subscription_id) is endpoint:
            endpoint.closed = False
            self._scheduler.wake(None, endpoint.subscription_id)
