"""Resetting a project: all that it has is deleted at once, for tests; an extension (G2)."""

from broker.access.policies.policy_rows import forget_policies
from broker.core.context.core import Core
from broker.features.reset.rows import Emptied, empty_project
from broker.model.errors import FailedPrecondition
from broker.model.names import check_project
from broker.observability.log import fields_of


class ResetService:
    """`allowed`: by the operator, for nothing of it can be had back."""

    def __init__(self, core: Core, *, allowed: bool) -> None:
        self._database = core.database
        self._wake_ups = core.wake_ups
        self._states = core.states
        self._allowed = allowed

    async def reset_project(self, project: str, *, by: str = "") -> Emptied:
        """Delete its topics, subscriptions, snapshots, schemas and operations; what is under way ends as if each
        were deleted.  Raises FailedPrecondition, InvalidArgument.
        """
        check_project(project)
        if not self._allowed:
            raise FailedPrecondition(
                "This broker resets no projects, for nothing of what they have can be had back; --allow-reset "
                f"(BROKER_ALLOW_RESET=true) lets it, where tests run ({project})."
            )
        async with self._database.transaction() as connection:
            emptied = await empty_project(connection, project=project)
            await forget_policies(connection, schema=self._database.schema, resources=emptied.deleted)
        self._states.report(
            "reset projects",
            f"{project} is reset{f' by {by}' if by else ''}",
            fields=fields_of(project, principal=by),
        )
        if names := [*emptied.deleted, *emptied.touched]:
            await self._wake_ups.announce(*names)
        return emptied
