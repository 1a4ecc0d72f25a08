"""The interface through which a feature adds fields to the topics of a list."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from broker.access.principals.caller import Caller
from broker.model.topic import Topic

BASIC = "BASIC"  # the view that adds nothing, which is the default


class TopicView(Protocol):
    """A view of a list of topics: it adds fields to the JSON of topics for callers over REST that name the view.

    It is called once for a page.
    """

    async def __call__(
        self, caller: Caller, project: str, topics: Sequence[Topic]
    ) -> Mapping[str, Mapping[str, Any]]:
        """Returns the additional fields of the JSON of topics of a project, by the name of the topic.

        Raises Unavailable.
        """
