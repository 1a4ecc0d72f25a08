"""Applies declarations to a project, for `broker apply` and `broker serve --apply`."""

from collections.abc import Callable, Sequence
from typing import Any

from broker.client.api import Api
from broker.client.stop import Stop
from broker.features.declarations.carrying_out import carry_out
from broker.features.declarations.checks import check_plan
from broker.features.declarations.plan import Step, make_plan
from broker.features.declarations.reading import Declared
from broker.features.declarations.state import read_policy, read_state


class Unfinished(Stop):
    """A step failed after others were done."""

    def __init__(self, step: Step, error: Stop, done: int, of: int) -> None:
        super().__init__(
            f"{step.kind} {step.name}: {error}; {done} of {of} steps are done; correct it and apply again"
        )
        self.exit_code = error.exit_code


def plan_for(api: Api, declared: Declared, project: str, *, owner: str, prune: bool = False) -> list[Step]:
    """Returns the steps to take; some of them may be problems.  Raises Stop."""
    state = read_state(api, project, schedules=prune or bool(declared.resources["schedules"]))

    def policy_of(name: str) -> Any:
        return read_policy(api, name)

    plan = make_plan(declared, state, project, owner=owner, prune=prune, policy_of=policy_of)
    check_plan(api, plan, declared, state, project)
    return plan


def carry_out_all(api: Api, plan: Sequence[Step], *, owner: str, report: Callable[[Step], None]) -> None:
    """`report` hears of each step that is done.  Raises Unfinished."""
    to_do = [step for step in plan if step.action != "none"]
    for number, step in enumerate(to_do):
        try:
            carry_out(api, step, owner)
        except Stop as error:
            raise Unfinished(step, error, number, len(to_do)) from error
        report(step)


def in_words(step: Step, project: str) -> str:
    """Says in words what was done: "created topic orders"."""
    verb = {"create": "created", "update": "updated", "delete": "deleted"}[step.action]
    return f"{verb} {step.kind} {project if step.name == project else step.name.rpartition('/')[2]}"
