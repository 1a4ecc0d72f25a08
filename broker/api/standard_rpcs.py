"""The standard services of gRPC: health and reflection."""

from collections.abc import Sequence

from broker.api.grpc import health_service, reflection
from broker.api.grpc.methods import Grpc
from broker.api.permissions import NOTHING, OPEN
from broker.api.row import Row
from broker.api.rpc import Audit, Kind, Size

_HEALTH = "grpc.health.v1.Health"

# fmt: off
STANDARD_RPCS: Sequence[Row] = [
    Row(
        name="Health.Check", kind=Kind.PROBE, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=OPEN,
        rest=[],
        grpc=[Grpc(_HEALTH, health_service.check)],
    ),
    Row(
        name="Health.Watch", kind=Kind.WAITING, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=OPEN,
        rest=[],
        grpc=[Grpc(_HEALTH, streaming=health_service.watch)],
    ),
    Row(
        name="ServerReflection.ServerReflectionInfo",
        kind=Kind.WAITING, size=Size.SMALL, audit=Audit.USE, starts=None,
        needs=NOTHING,
        rest=[],
        grpc=[
            Grpc("grpc.reflection.v1.ServerReflection", streaming=reflection.server_reflection),
            Grpc("grpc.reflection.v1alpha.ServerReflection", streaming=reflection.server_reflection),
        ],
    ),
]
# fmt: on
