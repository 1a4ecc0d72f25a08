"""Finds what the caller of a call sees of messages."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from broker.access.policies.authorizer import Required
from broker.api.permissions import LOOK
from broker.api.rest.call import Call
from broker.core.catalog.resource_cache import Entries, ResourceCache
from broker.core.catalog.subscription_rows import find_dead_lettering
from broker.core.viewing.masking_rule import MaskingRule
from broker.core.viewing.message_view import SEES_ALL, MessageView, Sight, sight_of
from broker.db.driver.database import Database
from broker.model.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from broker.model.names import project_of
from broker.model.topic import DELETED_TOPIC

Rules = Sequence[MaskingRule]


def rules_of(project: str) -> str:
    """The name under which the rules of a project are kept, and are announced when they change."""
    return f"{project}/maskingRules"


class MessageViews:
    """The views of the messages of a process.  Without `rules`, which are by project, nothing is masked.

    A caller who may receive the messages costs a comparison; any other one a look into a cache, and a statement
    where the project has rules.
    """

    def __init__(
        self,
        database: Database | None = None,
        resources: ResourceCache | None = None,
        rules: Entries[Rules] | None = None,
    ) -> None:
        self._database = database
        self._resources = resources
        self._rules = rules

    async def of(self, call: Call, name: str, *, required: Sequence[Required] | None = None) -> MessageView:
        """The view of a topic or subscription, for the caller that a call with `LOOK` let in.

        The rules for a subscription, for its topic, and for what dead-letters to that topic apply; once the topic
        was deleted, all rules of the project.  `required`: by what the caller was let in, if that was not checked
        before the call.  Raises Unavailable.
        """
        return await self.of_resource(sight_of(call.required if required is None else required), name)

    async def of_resource(self, sight: Sight, name: str) -> MessageView:
        """The view of a topic or subscription, as `of`.  Raises Unavailable."""
        if sight is Sight.WHOLE:
            return SEES_ALL
        return MessageView(sight, await self._rules_for(name))

    async def of_dead_letters(self, call: Call, subscription: str) -> MessageView:
        """The view of the dead letters of a subscription: as `of`, and by the rules for its dead-letter topic.

        Raises Unavailable.
        """
        view = await self.of(call, subscription)
        if view.sight is not Sight.WHOLE and self._resources is not None:
            with suppress(NotFound, InvalidArgument):  # the call itself says so
                policy = (await self._resources.subscription(subscription)).dead_letter_policy
                if policy is not None:
                    view = view.joined(await self.of_names(view.sight, [policy.dead_letter_topic]))
        return view

    async def of_permitted(self, call: Call, topic: str, *, otherwise: Sight = Sight.MASKED) -> MessageView:
        """The view of a message that is to be published on a topic, in a call whose permission is another one.

        `otherwise`: the sight of callers who may not look at them.  Raises Unavailable.
        """
        if call.gate is None:
            return SEES_ALL
        sight = otherwise
        with suppress(PermissionDenied, Unauthenticated):
            sight = max(otherwise, sight_of(await call.gate.allow(call.caller, LOOK, topic)))
        return SEES_ALL if sight is Sight.WHOLE else await self.of_names(sight, [topic])

    async def of_names(self, sight: Sight, names: Iterable[str]) -> MessageView:
        """The view by the rules for any of these topics and subscriptions, and no others.  Raises Unavailable."""
        if sight is Sight.WHOLE or self._rules is None:
            return MessageView(sight)
        found: dict[str, MaskingRule] = {}
        for name in names:
            for rule in await self._rules.get(rules_of(project_of(name))) or ():
                if rule.covers(name):
                    found[rule.name] = rule
        return MessageView(sight, tuple(found[name] for name in sorted(found)))

    async def _rules_for(self, name: str) -> Rules:
        if self._rules is None or self._database is None or self._resources is None:
            return ()
        names = [name]
        topic = name
        if "/subscriptions/" in name:
            try:
                topic = (await self._resources.subscription(name)).topic
            except (NotFound, InvalidArgument):  # the call itself says so
                return ()
            if topic == DELETED_TOPIC:  # nothing says any more which rules were for its messages
                return await self._rules.get(rules_of(project_of(name))) or ()
            names.append(topic)
        async with self._database.transaction() as connection:
            names += await find_dead_lettering(connection, topic=topic)
        return (await self.of_names(Sight.MASKED, names)).rules


NOTHING_MASKED = MessageViews()
