"""All actions of the console."""

from collections.abc import Sequence

from broker.console.actions import access, dead_letters, project, quotas, subscriptions, topics
from broker.console.actions.action import Action

ACTIONS: Sequence[Action] = [
    *topics.ACTIONS,
    *subscriptions.ACTIONS,
    *dead_letters.ACTIONS,
    *project.ACTIONS,
    *access.ACTIONS,
    *quotas.ACTIONS,
]
