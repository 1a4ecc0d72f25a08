"""One call about resources, as its handler sees it whichever door it came by, and what it is answered with."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker.access.policies.authorizer import Required
from broker.access.principals.caller import ANONYMOUS, Caller
from broker.api.generated import messages
from broker.app.service_types import Services
from broker.model.schema_settings import NO_OPTIONS, SchemaOptions
from broker.model.subscription import Extensions


@dataclass(frozen=True, slots=True)
class ResourceCall:
    """What comes beside Google's request.

    `extensions` are those that the request's JSON has; None over gRPC, whose messages have no field for them: there
    a new subscription has none, and a change leaves them alone.  `schema_options` likewise, of a schema.
    `or_update`: a resource that exists already is to be changed at these paths instead (None: is in the way).
    `allowed`: what the caller was found to have (None: anybody may do anything).  `undoable`: of a seek.
    `beside`: other fields of the request's JSON that Google's message does not have.
    """

    services: Services
    caller: Caller = ANONYMOUS
    extensions: Extensions | None = None
    schema_options: SchemaOptions = NO_OPTIONS
    or_update: Sequence[str] | None = None
    allowed: Sequence[Required] | None = None
    undoable: bool = False
    beside: Mapping[str, Any] = field(default_factory=dict)


class Answer(NamedTuple):
    """Google's response.  `shown`: the value, or list of values, in it; REST may say more of it than it holds."""

    message: Any
    shown: object = None


Handler = Callable[[ResourceCall, Any], Awaitable[Answer]]

EMPTY = Answer(messages.Empty())
