"""Returns and sets quotas (E4).  features/quotas/quotas.py enforces them."""

from collections.abc import Mapping

from broker.core.context.core import Core
from broker.features.quotas import rows as store
from broker.features.quotas.quota import QuotaReport
from broker.features.quotas.quotas import Quotas
from broker.features.quotas.retained_bytes import RetainedBytes
from broker.model.names import check_project
from broker.model.quota_names import COUNTS

LISTED_PRINCIPALS = 100  # those that use most


class QuotaService:
    """An extension, in the manner of Google's Service Usage."""

    def __init__(self, core: Core, quotas: Quotas, retained_bytes: RetainedBytes) -> None:
        self._database = core.database
        self._clock = core.clock
        self._quotas = quotas
        self._retained_bytes = retained_bytes
        self._wake_ups = core.wake_ups

    async def get_quotas(self, project: str) -> QuotaReport:
        """Limits and usage of a project.  Raises InvalidArgument."""
        check_project(project)
        async with self._database.transaction() as connection:
            rates = await store.read_usage(
                connection, project=project, now=self._clock.now(), principals=LISTED_PRINCIPALS
            )
            counts = await store.count_all(connection, project=project, counted=COUNTS)
        set_here, in_force = self._quotas.is_set(project), self._quotas.of_project(project)
        return QuotaReport(project, set_here, in_force, rates, counts, self._quotas.amounts(project))

    async def update_quotas(
        self,
        project: str,
        *,
        limits: Mapping[str, int | None],
        principal_limits: Mapping[str, int | None],
        etag: str = "",
    ) -> QuotaReport:
        """Set the limits that are given; None: the default again, -1: none.  It holds here at once, elsewhere soon.

        `etag`: that of the quotas as the caller has read them ("": they are set whatever they are).  Raises
        InvalidArgument, Aborted (they have changed since); nothing is changed then.
        """
        check_project(project)
        async with self._database.transaction() as connection:
            current = await store.lock_quotas(connection, project=project)
            current.check_etag(etag)
            quotas = current.changed(limits, principal_limits)
            await store.write_quotas(connection, project=project, quotas=quotas)
        await self._wake_ups.announce(f"{project}/quotas")
        await self._quotas.load()
        if "retainedBytes" in limits:
            await self._retained_bytes.refresh()
        return await self.get_quotas(project)
