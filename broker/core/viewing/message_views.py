"""Finds what the caller of a call sees of messages."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from broker.access.policies.authorizer import Required
from broker.api.permissions import LOOK
from broker.api.rest.call import Call
from broker.core.catalog.resource_cache import Entries, ResourceCache
from broker.core.viewing.masking_rule import MaskingRule
from broker.core.viewing.message_view import SEES_ALL, MessageView, Sight, sight_of
from broker.model.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from broker.model.names import project_of
from broker.model.topic import DELETED_TOPIC

Rules = Sequence[MaskingRule]


def rules_of(project: str) -> str:
    """The name under which the rules of a project are kept, and are announced when they change."""
    return f"{project}/maskingRules"


class MessageViews:
    """The views of the messages of a process.  Without `rules`, which are by project, nothing is masked.

    For callers who may receive the messages nothing is looked up.  For all others, the rules and the subscriptions
    that dead-letter to a topic are in caches.
    """

    def __init__(self, resources: ResourceCache | None = None, rules: Entries[Rules] | None = None) -> None:
        self._resources = resources
        self._rules = rules

    async def of(self, call: Call, name: str, *, required: Sequence[Required] | None = None) -> MessageView:
        """The view of a topic or subscription, for the caller that a call with `LOOK` let in.

        The rules for a subscription, for its topic, and for what dead-letters to that topic apply; once the topic
        was deleted, all rules of the project.  `required`: by what the caller was let in, if that was not checked
        before the call.  Raises Unavailable.
        """
        sight = sight_of(call.required if required is None else required)
        if sight is Sight.WHOLE or self._resources is None:
            return MessageView(sight)
        if "/subscriptions/" not in name:
            return await self.of_names(sight, await self._sources_of(name))
        try:
            topic = (await self._resources.subscription(name)).topic
        except (NotFound, InvalidArgument):  # the call itself says so
            return MessageView(sight)
        return await self.of_subscription(sight, name, topic)

    async def of_subscription(self, sight: Sight, name: str, topic: str) -> MessageView:
        """The view of the messages that a subscription has, or had, of a topic.

        If the topic was deleted, nothing says any more which rules were for its messages.  Raises Unavailable.
        """
        if sight is Sight.WHOLE:
            return SEES_ALL
        if topic == DELETED_TOPIC and self._rules is not None:
            return MessageView(sight, tuple(await self._rules.get(rules_of(project_of(name))) or ()))
        return await self.of_names(sight, [name, *await self._sources_of(topic)])

    async def of_permitted(self, call: Call, topic: str) -> MessageView:
        """The view of a message that is to be published on a topic, in a call that shows it by another permission.

        Callers who may not look at messages of the topic see what no rule hides.  Raises Unavailable.
        """
        if call.gate is None:
            return SEES_ALL
        sight = Sight.MASKED
        with suppress(PermissionDenied, Unauthenticated):
            sight = max(sight, sight_of(await call.gate.allow(call.caller, LOOK, topic)))
        return await self.of_names(sight, [topic])

    async def of_names(self, sight: Sight, names: Iterable[str]) -> MessageView:
        """The view by the rules for any of these topics and subscriptions, and no others.

        The name of a deleted topic stands for none.  Raises Unavailable.
        """
        if sight is Sight.WHOLE or self._rules is None:
            return MessageView(sight)
        by_project: dict[str, list[str]] = {}
        for name in names:
            if name == DELETED_TOPIC:
                continue
            by_project.setdefault(project_of(name), []).append(name)
        found: dict[str, MaskingRule] = {}
        for project, resources in by_project.items():
            for rule in await self._rules.get(rules_of(project)) or ():
                if any(map(rule.covers, resources)):
                    found[rule.name] = rule
        return MessageView(sight, tuple(found[name] for name in sorted(found)))

    async def _sources_of(self, topic: str) -> Iterable[str]:
        """Returns a topic, the subscriptions that dead-letter to it and their topics, and so on from these topics.

        Rules for all of them hold for dead letters.
        """
        if self._resources is None or topic == DELETED_TOPIC:
            return ()
        names, topics = {topic: None}, [topic]
        for each in topics:  # the loop adds to them
            for name in await self._resources.dead_lettering(each):
                if "/topics/" in name and name not in names:
                    topics.append(name)
                names[name] = None
        return names


NOTHING_MASKED = MessageViews()
