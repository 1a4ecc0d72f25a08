"""The services of Google's that are not served: what both doors say to their calls.

FAILED_PRECONDITION, not UNIMPLEMENTED: gcloud sends a call that was answered with 501 again for half a minute
before it prints why.
"""

from broker.domain.errors import FailedPrecondition

REASONS = {
    "SchemaService": "schemas are not served yet",
}


def not_served(rpc: str) -> FailedPrecondition:
    """What to raise for a method ("SchemaService.CreateSchema") of one of them."""
    return FailedPrecondition(f"The method {rpc} is not served: {REASONS[rpc.partition('.')[0]]}.")
