"""The quotas of all projects, as this process enforces them (E4).

A worker runs `balance`: ten times a second it reports to the other processes, through the database, what was taken
here.  Nothing else queries the database: a measured call costs a dictionary lookup, and if nothing is limited, one
check of `is_metered`.  retained_bytes.py measures the retained bytes.
"""

import time
from collections.abc import Callable

from broker.core.context.admission import NO_GAUGE, Gauge
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database, ResourceConnection
from broker.fairness.refusal_pace import RefusalPace
from broker.features.quotas import rows as store
from broker.features.quotas.connections import Connection, Connections
from broker.features.quotas.quota import (
    NO_QUOTAS,
    Limits,
    ProjectQuotas,
    exceeded,
)
from broker.features.quotas.quota_bucket import Ceiling, Level, Metered, QuotaBucket, QuotaGauge
from broker.features.quotas.rows import Taken
from broker.model.errors import QuotaExceeded
from broker.model.quota_names import PUBLISH, SUBSCRIBE, Amount, Counted, Rate

BALANCE_SECONDS = 0.1
READ_SECONDS = 30.0  # how long what is known of limits is believed, if word of a change was lost

_RETAINED: Amount = "retainedBytes"

_Key = tuple[str, str, str]  # project, principal (empty: the project's own), quota


class Quotas:
    """The Admission of a process whose projects have quotas."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        *,
        defaults: ProjectQuotas = NO_QUOTAS,
        processes: Callable[[], int] = lambda: 1,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """`defaults`: of each project that nothing else was set for.  `processes`: how many run."""
        self._database = database
        self._clock = clock
        self._defaults = defaults
        self._processes = processes
        self.ticks = ticks
        self._set: dict[str, ProjectQuotas] = {}
        self._in_force: dict[str, ProjectQuotas] = {}  # with the defaults, of projects that were asked for
        self._buckets: dict[_Key, QuotaBucket] = {}
        self._gauges: dict[tuple[str, str, tuple[Rate, Rate, Rate]], QuotaGauge] = {}
        self._retained: dict[str, Level] = {}
        self._refusals = RefusalPace(ticks=ticks)
        self.connections = Connections(
            lambda project: self.of_project(project).limits.get("connections"), refusals=self._refusals
        )
        self._in_use: set[_Key] = set()  # since the limits were read last
        self._read_at: float | None = None  # None: they must be read
        self._changes = 0  # that were reported: one of them during a read may be missing from it
        self.is_metered = NO_QUOTAS.over(defaults).is_metered

    # --- what holds --------------------------------------------------------------------------------------

    def of_project(self, project: str) -> ProjectQuotas:
        """The limits that hold in a project ("projects/p")."""
        quotas = self._in_force.get(project)
        if quotas is None:
            quotas = self._in_force[project] = self._set.get(project, NO_QUOTAS).over(self._defaults)
        return quotas

    def is_set(self, project: str) -> ProjectQuotas:
        """Returns the quotas that were set for the project itself."""
        return self._set.get(project, NO_QUOTAS)

    def changed(self, name: str | None) -> None:
        """Reads the quotas again with the next check: those of this name were changed, or (None) perhaps any."""
        if name is None or name.endswith("/quotas"):
            self._read_at = None
            self._changes += 1

    async def load(self) -> None:
        """Read all limits; again with the next check if they change meanwhile.  Raises a BrokerError."""
        changes = self._changes
        async with self._database.transaction() as connection:
            found = await store.read_all_quotas(connection)
            await store.delete_forgotten(connection, now=self._clock.now())
        changed = {name for name in {*found, *self._set} if found.get(name) != self._set.get(name)}
        self._set, self._read_at = found, self.ticks() if changes == self._changes else None
        self._in_force.clear()
        self.is_metered = any(self.of_project(project).is_metered for project in ("", *found))
        self._buckets = {
            key: bucket
            for key, bucket in self._buckets.items()
            if key[0] not in changed and (key in self._in_use or bucket.has_unreported or bucket.wait(self.ticks()))
        }
        self._gauges.clear()
        self._refusals.forget()
        self._in_use.clear()

    # --- rates -------------------------------------------------------------------------------------------

    def publishing(self, project: str, principal: str) -> Gauge:
        """Returns the gauge of what a principal ("": none) publishes in a project."""
        return self._gauge(project, principal, PUBLISH) if self.is_metered else NO_GAUGE

    def subscribing(self, project: str, principal: str) -> Gauge:
        return self._gauge(project, principal, SUBSCRIBE) if self.is_metered else NO_GAUGE

    async def check(self, gauge: Gauge, project: str, *, requests_alone: bool = False) -> float:
        """Check a gauge, and return the time to `take` by.

        Raises QuotaExceeded, after a while if the project is refused often.
        """
        now = self.ticks()
        try:
            gauge.check(now, requests_alone=requests_alone)
        except QuotaExceeded:
            await self._refusals.wait(project)
            raise
        return now

    def _gauge(self, project: str, principal: str, rates: tuple[Rate, Rate, Rate]) -> QuotaGauge:
        key = project, principal, rates
        gauge = self._gauges.get(key)
        if gauge is None:
            ceiling = self._ceiling(project) if rates is PUBLISH else None
            gauge = self._gauges[key] = QuotaGauge(self._metered(project, principal, rates), ceiling)
        return gauge

    def _ceiling(self, project: str) -> Ceiling | None:
        limit = self.of_project(project).limits.get(_RETAINED)
        if limit is None:
            return None
        return Ceiling(_RETAINED, project, limit, self._retained.setdefault(project, Level()))

    def _metered(self, project: str, principal: str, rates: tuple[Rate, Rate, Rate]) -> list[Metered]:
        quotas = self.of_project(project)
        whose: list[tuple[str, Limits]] = [("", quotas.limits)]
        if principal:
            whose.append((principal, quotas.principal_limits))
        return [
            Metered(quota, project, of, unit, self._bucket((project, of, quota), limits[quota]))
            for of, limits in whose
            for unit, quota in enumerate(rates)
            if quota in limits
        ]

    def _bucket(self, key: _Key, rate: int) -> QuotaBucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = QuotaBucket(rate, processes=self._processes(), now=self.ticks())
            self._buckets[key] = bucket
            self._in_use.add(key)
        return bucket

    async def balance(self) -> int:
        """Tell what was taken, and hear what is left; how many buckets that was.  Raises a BrokerError."""
        if self._read_at is None or self.ticks() - self._read_at > READ_SECONDS:
            await self.load()
        now = self.ticks()
        reporting = {key: bucket for key, bucket in self._buckets.items() if bucket.has_much_unreported(now)}
        if not reporting:
            return 0
        taken = [Taken(*key, float(bucket.rate), float(bucket.report())) for key, bucket in reporting.items()]
        at = self._clock.now()
        try:
            async with self._database.hot() as connection:
                held = await store.balance_quotas(connection, taken=taken, now=at)
        except BaseException:
            for bucket in reporting.values():
                bucket.unreport()
            raise
        self._in_use.update(reporting)
        processes = self._processes()
        for key, bucket in reporting.items():
            bucket.balanced(held[key], processes=processes, now=now)
        return len(reporting)

    # --- amounts -----------------------------------------------------------------------------------------

    def limited_in_retained(self) -> tuple[bool, set[str], set[str]]:
        """Whether the installation limits what projects retain, and the projects that have a limit, or none, of
        their own.
        """
        of = {project: quotas.over(self._defaults).limits for project, quotas in self._set.items()}
        limited = {project for project, limits in of.items() if _RETAINED in limits}
        return _RETAINED in self.of_project("").limits, limited, of.keys() - limited

    def retains(self, project: str, kept: int) -> None:
        """Sets the bytes that the topics of a project keep, as a check has found."""
        self._retained.setdefault(project, Level()).refresh(kept)

    def is_pressing(self) -> bool:
        """Whether a project nears its limit of retained bytes so fast that a check is due."""
        for project, level in self._retained.items():
            limit = self.of_project(project).limits.get(_RETAINED)
            if limit is not None and level.is_pressing(limit, processes=self._processes()):
                return True
        return False

    def amounts(self, project: str) -> dict[Amount, int]:
        """Returns the amounts that a project uses, as was last read; 0 where they are not limited."""
        limits, level = self.of_project(project).limits, self._retained.get(project)
        return {
            "retainedBytes": level.kept if level is not None and _RETAINED in limits else 0,
            "connections": self.connections.count(project) if "connections" in limits else 0,
        }

    # --- counts ------------------------------------------------------------------------------------------

    async def check_count(
        self, connection: ResourceConnection, project: str, counted: Counted, most: int | None = None
    ) -> None:
        """Check the number of resources, in the transaction that has just inserted one more.

        `most`: what any project may have.  Raises QuotaExceeded.
        """
        given = [limit for limit in (self.of_project(project).limits.get(counted), most) if limit is not None]
        if not given:
            return
        limit = min(given)
        await store.lock_count(connection, project=project, counted=counted)
        if await store.count(connection, project=project, counted=counted, most=limit + 1) > limit:
            raise exceeded(counted, project=project, limit=limit, usage=limit)

    async def connect(self, project: str) -> Connection:
        """Count one more connection, which the caller closes.  Raises QuotaExceeded, soon if none is left."""
        return await self.connections.open(project)
