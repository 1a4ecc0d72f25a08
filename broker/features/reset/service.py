"""Resets a project: deletes all its resources at once, for tests; an extension (G2)."""

from broker.access.policies.policy_rows import forget_policies
from broker.core.context.core import Core
from broker.features.reset.rows import Emptied, empty_project, read_newest_resource
from broker.model.errors import FailedPrecondition
from broker.model.names import check_project
from broker.model.preview import UNGUARDED, Preview, Safeguards
from broker.observability.log import fields_of


class ResetService:
    """The resets of projects.

    `allowed`: whether the operator allows them, because a reset cannot be undone.
    """

    def __init__(self, core: Core, *, allowed: bool) -> None:
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._states = core.states
        self._allowed = allowed

    async def reset_project(self, project: str, safeguards: Safeguards = UNGUARDED, *, by: str = "") -> Emptied:
        """Deletes the topics, subscriptions, snapshots, schemas, operations and schedules of a project.

        Calls under way end as if each resource had been deleted.  Raises FailedPrecondition (resets are not
        allowed), InvalidArgument, NotAsExpected; and Undone (a preview, if the caller asked only for that).
        """
        check_project(project)
        if not self._allowed:
            raise FailedPrecondition(
                "This broker resets no projects, for nothing of what they have can be had back; --allow-reset "
                f"(BROKER_ALLOW_RESET=true) lets it, where tests run ({project})."
            )
        async with self._database.transaction() as connection:
            if safeguards.as_of is not None:
                newest = await read_newest_resource(connection, project=project)
                safeguards.check_newest(newest, f"A resource of {project} was created, or a message published,")
            emptied = await empty_project(connection, project=project)
            safeguards.settle(
                Preview(count=len(emptied.deleted), unit="resource", time=self._clock.now(), losses=emptied.counts)
            )
            await forget_policies(connection, schema=self._database.schema, resources=emptied.deleted)
        self._states.report(
            "reset projects",
            f"{project} is reset{f' by {by}' if by else ''}",
            fields=fields_of(project, principal=by),
        )
        if names := [*emptied.deleted, *emptied.touched]:
            await self._wake_ups.announce(*names)
        return emptied
