"""The properties of a call that are the same over REST and gRPC.  `row.py` has the rows of the table of calls."""

from dataclasses import dataclass
from enum import Enum

from broker.api.permissions import Needs
from broker.model.operation_verb import Verb


class Kind(Enum):
    """The scheduling of a call beside other calls."""

    HOT = "waits for a flush; a bounded number of calls of each project at a time (hot_calls.py)"
    QUERY = "reads resources; takes a slot of its project (resource_calls.py), its answer may be large"
    SCAN = "reads many messages or subscriptions; its service has slots for that"
    WAITING = "may be open for long, without a slot; ends once its credential or its permission does"
    CHANGE = "changes resources or messages; takes a slot of its project (resource_calls.py)"
    PROBE = "tells that the process lives; takes no slot"


class Size(Enum):
    """The size limit of a request, and how it is refused if the memory for requests is taken (admission.py)."""

    PUBLISH = "messages: may fill the memory for requests, and is refused with RESOURCE_EXHAUSTED"
    IMPORT = "as PUBLISH, but a small body may become a large one"
    ACK_IDS = "up to 524,288 bytes"
    REQUEST = "up to 10 MB"
    SMALL = "up to 65,536 bytes: the call needs no permission"


class Audit(Enum):
    """The record of a call in the audit log (auditor.py), and in the log of changes (api/logging/changes.py)."""

    USE = "data access: in the audit log by choice"
    CREATE = "a change, of a resource whose name is in the answer"
    UPDATE = "a change, of the fields that the request names"
    CHANGE = "any other change of a resource"
    MESSAGES = "a change of messages: as frequent as publishes may be, and so not in the log of changes"

    @property
    def is_change(self) -> bool:
        return self is not Audit.USE


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Rpc:
    """A call.  No fact has a default: decide each when you add a call.

    `name`: Google's name with its service ("Publisher.CreateTopic"); an extension of Pub/Sub has no service.
    `starts`: the operation that the call starts, if any; a caller who may make the call may end such an operation.
    """

    name: str
    needs: Needs
    kind: Kind
    size: Size
    audit: Audit
    starts: Verb | None
