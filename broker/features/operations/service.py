"""Starts, lists, awaits and cancels long-running operations (G1)."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from secrets import randbits
from typing import Any

from broker.core.context.core import Core
from broker.core.process.attempt_ids import microseconds
from broker.core.publishing.publishing_rules import COPY, check_accepts
from broker.core.resources.topic_service import existing_topic
from broker.db.driver.database import ResourceConnection
from broker.features.operations import rows as store
from broker.features.operations.listing import (
    operation_page_key,
    parse_operation_filter,
    parse_operation_page,
    parse_order,
)
from broker.features.operations.operation import Operation, Origin, with_origin
from broker.features.operations.operation_notifications import OperationNotifications
from broker.model.errors import FailedPrecondition, InvalidArgument, NotFound, QuotaExceeded
from broker.model.names import check_project, leaf, project_of
from broker.model.operation_verb import Verb
from broker.model.page import cut_page
from broker.model.preview import UNGUARDED, Preview, Safeguards, preview_of_references
from broker.model.topic import Topic
from broker.observability.metrics.families import OPERATIONS_ENDED

MAX_WAIT_SECONDS = 60.0
_CHECK_SECONDS = 1.0  # should the news be lost
_RANDOM_BITS = 24


class OperationService:
    """The calls of google.longrunning."""

    def __init__(self, core: Core, notifications: OperationNotifications, *, at_once: int) -> None:
        """`at_once`: how many operations of a project may be under way."""
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._notifications = notifications
        self._counts = core.counters.process
        self._at_once = at_once

    async def begin(
        self,
        verb: Verb,
        target: str,
        *,
        origin: Origin,
        request: Mapping[str, Any],
        total: int,
        is_estimate: bool = False,
        safeguards: Safeguards,
    ) -> Operation:
        """Starts an operation or, if the caller asked for a preview, only plans it.

        The count is compared with the expected one before the operation starts, and its steps leave alone what has
        changed since then.  Raises QuotaExceeded, NotAsExpected (`total` is not the expected count),
        FailedPrecondition (`total` is an estimate, and cannot be compared).
        """
        counted = Preview(count=total, unit="message", is_estimated=is_estimate, time=self._clock.now())
        act = self.start if safeguards.previewed(counted) is None else self.plan
        return await act(verb, target, origin=origin, request=request, total=total, is_estimate=is_estimate)

    async def start(
        self,
        verb: Verb,
        target: str,
        *,
        origin: Origin,
        request: Mapping[str, Any],
        total: int,
        is_estimate: bool = False,
    ) -> Operation:
        """Starts an operation, which begins within a moment, in any process.  Raises QuotaExceeded."""
        operation = await self.plan(
            verb, target, origin=origin, request=request, total=total, is_estimate=is_estimate
        )
        async with self._database.transaction() as connection:
            running = await store.count_running(connection, project=operation.project)
            if running >= self._at_once:
                raise _too_many(operation.project, running)
            await store.insert_operation(connection, operation=operation)
        await self._wake_ups.announce(operation.name)
        return operation

    async def plan(
        self,
        verb: Verb,
        target: str,
        *,
        origin: Origin,
        request: Mapping[str, Any],
        total: int,
        is_estimate: bool = False,
    ) -> Operation:
        """Returns an operation as `start` would start it, without starting it.  Names ascend in time."""
        now = self._clock.now()
        project = project_of(target)
        return Operation(
            name=f"{project}/operations/{microseconds(now):014x}{randbits(_RANDOM_BITS):06x}",
            project=project,
            verb=verb,
            target=target,
            started_by=origin.principal,
            request=with_origin(request, origin),
            total=total,
            is_estimate=is_estimate,
            created_at=now,
            updated_at=now,
            next_step_at=now,
        )

    async def get_operation(self, name: str) -> Operation:
        """Raises NotFound."""
        async with self._database.transaction() as connection:
            operation = await store.find_operation(connection, name=name)
        if operation is None:
            raise operation_not_found(name)
        return operation

    async def list_operations(
        self, project: str, *, page_size: int, page_token: str, order_by: str = "", filter_text: str = ""
    ) -> tuple[Sequence[Operation], str]:
        """Returns a page of the operations that match a filter, and the token of the next page.  Raises
        InvalidArgument.
        """
        check_project(project)
        order, comparisons = parse_order(order_by), parse_operation_filter(filter_text)
        page = parse_operation_page(project, page_size, page_token, order)
        async with self._database.transaction() as connection:
            found = await store.list_operations(
                connection, project=project, page=page, order=order, comparisons=comparisons
            )
        return cut_page(found, page.size, lambda operation: operation_page_key(operation, order))

    async def wait_operation(self, name: str, at_most: timedelta | None) -> Operation:
        """Returns the operation once it has ended, or as it is after `at_most` (None: MAX_WAIT_SECONDS).

        Raises NotFound, InvalidArgument (`at_most` is negative).
        """
        seconds = MAX_WAIT_SECONDS if at_most is None else at_most.total_seconds()
        if seconds < 0:
            raise InvalidArgument(f"timeout must not be negative (timeout={seconds:g}s).")
        loop = asyncio.get_running_loop()
        until = loop.time() + min(seconds, MAX_WAIT_SECONDS)
        while True:
            with self._notifications.heard(name) as something:
                operation = await self.get_operation(name)
                left = until - loop.time()
                if operation.ended_at is not None or left <= 0:
                    return operation
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _CHECK_SECONDS)):
                        await something.wait()

    async def cancel_operation(self, name: str) -> None:
        """Cancels an operation: no further step begins, and completed steps stay.  Does nothing if it has ended.

        Raises NotFound.
        """
        operation = await self.get_operation(name)
        async with self._database.transaction() as connection:
            message = f"It was cancelled; {operation.done:,} messages had been seen to when that was asked for."
            cancelled = await store.end_operation(
                connection, name=name, code="CANCELLED", message=message, now=self._clock.now()
            )
        if cancelled:
            self._counts[OPERATIONS_ENDED["cancelled"]] += 1
            await self._wake_ups.announce(name)

    async def delete_operation(self, name: str, safeguards: Safeguards = UNGUARDED) -> Preview | None:
        """Deletes an operation that has ended.

        Returns the preview if the caller asked only for that.  Raises NotFound, FailedPrecondition (it is under
        way), NotAsExpected.
        """
        if safeguards.asked:  # one that has ended stays as it is
            operation = await self.get_operation(name)
            if operation.ended_at is None:
                raise _under_way(name)
            safeguards.check_existed(operation.created_at, name)
            if preview := safeguards.previewed(preview_of_references((), time=self._clock.now())):
                return preview
        async with self._database.transaction() as connection:
            deleted = await store.delete_operation(connection, name=name)
        if not deleted:
            await self.get_operation(name)
            raise _under_way(name)
        return None


def operation_not_found(name: str) -> NotFound:
    return NotFound(f"There is no such operation, or it is not kept any more (resource={leaf(name)}).")


def _under_way(name: str) -> FailedPrecondition:
    return FailedPrecondition(f"The operation is under way: cancel it first (resource={leaf(name)}).")


def _too_many(project: str, running: int) -> QuotaExceeded:
    return QuotaExceeded(
        f"{running} operations of {project} are under way, as many as may be at once: wait for one "
        f"(POST /v1/{project}/operations/…:wait) or cancel one (…:cancel); --operations-at-once sets how many "
        f"may be (operationsAtOnce={running}).",
        log_message="A project has as many operations under way as may be.",
        retry_seconds=None,
    )


async def open_target(connection: ResourceConnection, name: str) -> Topic:
    """Returns a topic on which an operation may publish messages unchanged.

    Raises NotFound, FailedPrecondition (it is frozen, or has transforms).
    """
    topic = await existing_topic(connection, name)
    check_accepts(topic, COPY, may_wait=False)
    return topic
