"""Whether a project may publish on a topic without a caller, as its schedules and dead-letter policies do."""

from collections.abc import Awaitable, Callable

# Parameters: a project and the name of a topic.  Raises PermissionDenied, or Unavailable if the rights are not
# known.
CheckPublisher = Callable[[str, str], Awaitable[None]]


async def allow_any_publisher(_project: str, _topic: str) -> None:
    """Allows every project to publish on every topic."""
