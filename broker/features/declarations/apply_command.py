"""`broker apply`."""

import json
from collections.abc import Sequence
from typing import Any

import click

from broker.client import terminal
from broker.client.calling import Session, calling
from broker.client.confirming import (
    YES,
    confirm,
    determine_losses,
    is_asked,
    losses_of_subscription,
    losses_of_topic,
)
from broker.client.exit_codes import DONE, REFUSED
from broker.client.output import Output, Shown
from broker.client.stop import Misuse, Stop
from broker.client.words import leaf, value_text
from broker.features.declarations.applying import carry_out_all, in_words, plan_for
from broker.features.declarations.form import readable
from broker.features.declarations.json_schema import json_schema
from broker.features.declarations.plan import Change, Step
from broker.features.declarations.reading import read_declarations

_SIGNS = {"create": "+", "update": "~", "delete": "-", "none": " "}


@calling(
    "apply",
    "broker apply --file shop.yaml --dry-run",
    "broker apply --file shop.yaml",
    "broker apply --file shop.yaml --prune --yes",
    "broker apply --schema",
)
@click.option("-f", "--file", "files", metavar="FILE", multiple=True, help="YAML or JSON; - is standard input.")
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
@click.option("--prune", is_flag=True, help="Delete what it has made and no file declares any more.")
@click.option(
    "--owner", metavar="NAME", default="broker", show_default=True, help="In whose name it makes and prunes."
)
@YES
@click.option("--schema", "prints_schema", is_flag=True, help="Print the format as a JSON Schema, for editors.")
def apply(
    session: Session,
    *,
    files: tuple[str, ...],
    dry_run: bool,
    prune: bool,
    owner: str,
    yes: bool,
    prints_schema: bool,
) -> Shown | int:
    """Make topics, subscriptions, schemas and policies as files declare them.

    What a file says of one is all of it: what is left out is as by default. What no file names is left alone, but
    for --prune.
    """
    if prints_schema:
        schema = json_schema()
        return Shown(data=schema, script=json.dumps(schema, indent=2))
    if not files:
        raise Misuse("nothing to apply: give --file FILE; `broker export` writes such a file")
    declared = read_declarations(files, session.project)
    plan = plan_for(session.api, declared, session.project, owner=owner, prune=prune)
    cannot = any(step.problem for step in plan)
    deletions = [step for step in plan if step.action == "delete"]
    asks = bool(deletions) and is_asked(yes=yes)
    if (dry_run or cannot or asks) and not session.out.as_json:  # else what is done is said as it is done
        show_plan(session.out, plan, session.project)
    if cannot:
        _show_json(session.out, plan)
        return REFUSED
    if not dry_run:
        if asks:
            _confirm_deletions(session, deletions)
        _do(session, plan, owner)
    _show_json(session.out, plan)
    return DONE


def _confirm_deletions(session: Session, steps: Sequence[Step]) -> None:
    """Raises click.Abort unless the answer is yes."""
    of_kind = {"subscription": losses_of_subscription, "topic": losses_of_topic}
    for step in steps:
        find = of_kind.get(step.kind)
        for lost in determine_losses(find(session.api, step.name) if find else ()):
            terminal.write_line(f"  {step.kind} {leaf(step.name)}: {lost}", error=True)
    if steps:
        confirm(f"Delete {len(steps)} with all that they hold?", yes=False)


def _do(session: Session, plan: list[Step], owner: str) -> None:
    """Takes the steps of a plan.  Raises Stop, once the completed steps are reported."""

    def report(step: Step) -> None:
        if not session.out.as_json:
            session.out.styled(f"{_SIGNS[step.action]} {in_words(step, session.project)}", step.action)

    try:
        carry_out_all(session.api, plan, owner=owner, report=report)
    except Stop:
        _show_json(session.out, plan)
        raise
    if not session.out.as_json:
        counts = _counts(plan)
        session.out.styled(
            f"{counts['create']} created, {counts['update']} updated, {counts['delete']} deleted, "
            f"{counts['none']} as they are.",
            "",
        )


def show_plan(out: Output, plan: Sequence[Step], project: str) -> None:
    """Prints the plan as a diff."""
    for step in plan:
        if step.action == "none" and not step.problem:
            continue
        sign = "!" if step.problem else _SIGNS[step.action]
        out.styled(f"{sign} {step.kind} {step.name.rpartition('/')[2]}", "error" if step.problem else step.action)
        for change in step.changes:
            note = f" ({change.note})" if change.note else ""
            out.styled(f"    {change.field}: {_shift(change, project)}{note}", "")
        if step.problem:
            out.styled(f"    {step.problem}", "error")
    counts = _counts(plan)
    out.styled(
        f"{counts['create']} to create, {counts['update']} to update, {counts['delete']} to delete, "
        f"{counts['none']} as they are.",
        "",
    )


def _counts(plan: Sequence[Step]) -> dict[str, int]:
    return {action: sum(step.action == action for step in plan) for action in _SIGNS}


def _shift(change: Change, project: str) -> str:
    before, after = (readable(change.field, value) for value in (change.before, change.after))
    texts = ["by default" if one is None else _value(one, project) for one in (before, after)]
    return texts[1] if before is None else " → ".join(texts)


def _value(value: Any, project: str) -> str:
    return value_text(value).removeprefix(f"{project}/topics/").removeprefix(f"{project}/schemas/")


def _show_json(out: Output, plan: Sequence[Step]) -> None:
    if out.as_json:
        out.show(Shown(data=[step.as_json() for step in plan]))


COMMANDS = apply
