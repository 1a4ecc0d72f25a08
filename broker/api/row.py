"""A row of the table of calls: everything that is decided about a call, in one place.

A row has the name of a call, the permissions that it needs, how it is scheduled, how large its request may be, how
it is recorded, which operation it starts, and its paths and handlers over REST and gRPC.  Each package has the rows
of its calls in `rpcs.py`, with handlers that are bound to its services, and `broker/app` joins them.  The APIs, the
gate, the limits, the audit log and the specification read this table.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.api.generated.messages import full_name
from broker.api.google.call import Handler
from broker.api.grpc.methods import Grpc, Method
from broker.api.grpc.resource_handler import resource_handler as grpc_handler
from broker.api.permissions import Needs
from broker.api.rest.resource_handler import Safeguarded, query_parameters
from broker.api.rest.resource_handler import resource_handler as rest_handler
from broker.api.rest.routes import Rest, Route
from broker.api.rpc import Audit, Kind, Rpc, Size
from broker.model.operation_verb import Verb

PROJECT = "projects/*"  # `*` for each id
TOPIC = f"{PROJECT}/topics/*"
SUBSCRIPTION = f"{PROJECT}/subscriptions/*"
SNAPSHOT = f"{PROJECT}/snapshots/*"
SCHEMA = f"{PROJECT}/schemas/*"
SERVICE_ACCOUNT = f"{PROJECT}/serviceAccounts/*"
ROLE = f"{PROJECT}/roles/*"
API_KEY = f"{PROJECT}/apiKeys/*"
OPERATION = f"{PROJECT}/operations/*"
SCHEDULE = f"{PROJECT}/schedules/*"

PUBLISHER = "google.pubsub.v1.Publisher"
SUBSCRIBER = "google.pubsub.v1.Subscriber"

PAGE = ("pageSize", "pageToken")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Row(Rpc):
    """A call, with its paths over REST and its services over gRPC; either may be none.

    `target`: of a call about a resource, the path within Google's request to the name of that resource.
    """

    rest: Sequence[Rest]
    grpc: Sequence[Grpc]
    target: str = ""


class Http(NamedTuple):
    """A method and a path of a call about a resource.

    `parameters`: of the query, beside fields of the request.  `safeguarded`: where a destructive call has the
    fields that ask for a preview and limit the action (previews.py).
    """

    method: str
    path: str
    operation: str
    body: str | None = None
    parameters: Collection[str] = ()
    safeguarded: Safeguarded = None


def about_resource(
    *,
    name: str,
    kind: Kind,
    size: Size,
    audit: Audit,
    starts: Verb | None,
    needs: Needs,
    handler: Handler,
    target: str,
    http: Sequence[Http],
) -> Row:
    """A row of one of Google's calls about resources, which has one handler for REST and gRPC."""

    def rest(path: Http) -> Rest:
        where = path.safeguarded
        parameters = query_parameters(name, target=target, body=path.body, safeguarded=where)
        called = rest_handler(name, handler, target=target, body=path.body, safeguarded=where)
        return Rest(path.method, path.path, path.operation, called, {*parameters, *path.parameters}, path.body)

    return Row(
        name=name,
        needs=needs,
        kind=kind,
        size=size,
        audit=audit,
        starts=starts,
        rest=[rest(path) for path in http],
        grpc=[Grpc(full_name(name.partition(".")[0]), grpc_handler(name, handler))],
        target=target,
    )


def routes_of(rows: Iterable[Row]) -> Sequence[Route]:
    """Returns the methods and paths that REST serves."""
    return [
        Route(row, rest.method, rest.path, rest.operation, rest.handler, rest.parameters, rest.body)
        for row in rows
        for rest in row.rest
    ]


def methods_of(rows: Iterable[Row]) -> Sequence[Method]:
    """Returns the methods that gRPC serves."""
    return [Method(row, grpc.service, grpc.unary, grpc.streaming) for row in rows for grpc in row.grpc]
