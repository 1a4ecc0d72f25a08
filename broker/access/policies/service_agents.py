"""Checks what projects publish without a caller: their service agent needs the permission each time."""

from broker.access.policies.authorizer import Authorizer, Required
from broker.access.principals.service_agent import service_agent
from broker.model.errors import PermissionDenied
from broker.model.names import project_of

_PUBLISH = "pubsub.topics.publish"


class ServiceAgents:
    """Decisions are cached by the authorizer, for as long as no access changes in the project of the topic."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def check_publisher(self, project: str, topic: str) -> None:
        """Checks that a project may publish on a topic.  On its own topics it always may.

        Raises PermissionDenied, Unavailable.
        """
        if project_of(topic) == project:
            return
        agent = service_agent(project)
        try:
            await self._authorizer.check(agent, [Required(_PUBLISH, topic)])
        except PermissionDenied as error:
            raise PermissionDenied(
                f"The service agent of {project} may not publish on {topic}: {agent.member} needs a role there "
                f"with {_PUBLISH}, such as roles/pubsub.publisher.",
                details=error.details,
            ) from None
