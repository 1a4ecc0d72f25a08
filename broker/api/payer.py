"""The project or caller whose share of turns, memory and the event loop a call uses.

A call that needs a permission on its resource uses the share of the resource's project.  A call that needs none
uses the share of its caller's project, because anybody can name a resource and must not use up its owner's share.
"""

from broker.access.principals.caller import Caller
from broker.api.gate import Gate
from broker.api.permissions import Needs
from broker.model.names import project_within


def payer_of(needs: Needs, name: str, caller: Caller) -> str:
    """Returns the project ("projects/p") whose share a call about `name` uses, or a caller who has no project."""
    return project_within(name) if needs.all or not caller.authenticated else caller.home


def payer_of_error(gate: Gate | None, name: str, caller: Caller | None) -> str:
    """Returns the project whose share of errors an error uses ("": only the share of the caller's address).

    Errors count in the caller's project, because any caller can cause errors about any resource.
    """
    if gate is None:
        return project_within(name)
    return "" if caller is None else caller.home
