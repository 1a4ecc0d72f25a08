"""The REST side of a call: its methods and paths.

A path has `*` for each resource id.  `:verb` after the last id is Google's spelling; `/verb` is the plain spelling
of the same call (A12), and a path of its own.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from broker.api.rest.call import Call
from broker.api.rpc import Rpc

Handler = Callable[[Call], Awaitable[bytes]]


class Rest(NamedTuple):
    """A method and a path of a call.

    `operation`: the operationId in the specification.  `parameters`: what the query may have, in camelCase
    (query_parameters.py).  `body`: of a call about a resource, the field of Google's request that the JSON is
    (resource_handler.py).
    """

    method: str
    path: str
    operation: str
    handler: Handler
    parameters: Collection[str]
    body: str | None = None


class Route(NamedTuple):
    """A method and a path, and the call behind them."""

    rpc: Rpc
    method: str
    path: str
    operation: str
    handler: Handler
    parameters: Collection[str]
    body: str | None
