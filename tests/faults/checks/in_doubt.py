"""What Citus does not promise: that of what a node and the coordinator write together both or neither is done.

A node's part stays where the coordinator is killed before its own commit, or never hears of the node's, which was
killed (docs/operations.md, On Citus): then an application's message, or a tick, comes twice.
"""

from tests.faults.checks.view import View
from tests.faults.history import Fault

_KILLS = ("kill the coordinator", "kill a node")


def may_be_twice(view: View) -> bool:
    return any(isinstance(each, Fault) and each.name in _KILLS for each in view.history.operations)
