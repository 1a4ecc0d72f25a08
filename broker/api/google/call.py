"""A call about resources as its handler sees it, over either API, and its response."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from broker.access.policies.authorizer import Required
from broker.access.principals.caller import ANONYMOUS, Caller
from broker.api.generated import messages
from broker.model.preview import UNGUARDED, Preview, Safeguards


@dataclass(frozen=True, slots=True)
class ResourceCall:
    """The context of a call about a resource, beside Google's request.

    `extension_fields`: the fields of the request's JSON that Google's message lacks; None over gRPC, where such
    fields cannot be sent: a new resource has defaults for them, and a change leaves them alone.
    `or_update`: a resource that exists already is to be changed at these paths instead (None: it is an error).
    `allowed`: the permissions that the caller was found to have (None: anybody may do anything).
    `safeguards`: what a caller over REST asks of a destructive call besides the action.  `view`: how much of the
    resources of a list a caller over REST wants, where Google's request has no such field.
    """

    caller: Caller = ANONYMOUS
    extension_fields: Mapping[str, Any] | None = None
    or_update: Sequence[str] | None = None
    allowed: Sequence[Required] | None = None
    safeguards: Safeguards = UNGUARDED
    view: str = ""


class Answer(NamedTuple):
    """Google's response.

    `shown`: the value in it, or the list of values.  `extension_fields(value)`: the fields of a value's JSON that
    Google's message lacks, which REST adds to the response.  `trailers`: metadata after the response over gRPC.
    `preview`: REST answers with this instead, because nothing was to be changed.
    """

    message: Any
    shown: Any = None
    extension_fields: Callable[[Any], Mapping[str, Any]] | None = None
    trailers: Sequence[tuple[bytes, bytes]] = ()
    preview: Preview | None = None


Handler = Callable[[ResourceCall, Any], Awaitable[Answer]]

EMPTY = Answer(messages.Empty())
