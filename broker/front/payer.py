"""In whose share a call counts: turns, memory and the event loop are divided by project.

A call that has shown a permission on its resource counts in the project of that resource.  One that needs no
permission counts in the project of its caller: anybody can name a resource, and must not use up its owner's share.
"""

from broker.domain.caller import Caller
from broker.domain.names import project_within
from broker.front.gate import Gate
from broker.front.permissions import Needs


def payer_of(needs: Needs, name: str, caller: Caller) -> str:
    """The project ("projects/p") in whose share a call about `name` counts, or a caller that is of no project."""
    return project_within(name) if needs.all or not caller.authenticated else caller.home


def payer_of_error(gate: Gate | None, name: str, caller: Caller | None) -> str:
    """In whose share of errors one counts; "": in that of an address alone.

    Any caller can have errors about any resource, so they count in the caller's project.
    """
    if gate is None:
        return project_within(name)
    return "" if caller is None else caller.home
