"""`broker reset`."""

from typing import Any

from broker.client.calling import Session, calling
from broker.client.confirming import YES, Loss, confirm_loss
from broker.client.output import Shown
from broker.client.safeguards import safeguarded, shown_preview, taken
from broker.client.words import counted


@calling("reset", "broker reset --project scratch --dry-run", "broker reset --project scratch --yes")
@safeguarded
@YES
def reset(session: Session, *, yes: bool, **safeguards: Any) -> Shown:
    """Delete all that the project has, for good; needs this broker, started with --allow-reset."""
    project = session.project
    body = taken(session.api, safeguards)
    if "validateOnly" in body:
        return shown_preview(project, session.api.call("POST", f"{project}:reset", body))
    confirm_loss(f"Delete all that {project} has, for good?", [_loss(session)], yes=yes)
    answer = session.api.call("POST", f"{project}:reset", body)
    counts = ", ".join(f"{kind} {count}" for kind, count in answer["deleted"].items() if count)
    return Shown(data=answer, line=f"Reset {project}, which had {counts or 'nothing'}.")


def _loss(session: Session) -> Loss:
    def find() -> str:
        kinds = ("topic", "subscription", "snapshot", "schema", "schedule")
        counts = {kind: len(session.api.all_of(f"{session.project}/{kind}s", f"{kind}s")) for kind in kinds}
        return ", ".join(counted(count, kind) for kind, count in counts.items()) + " would be deleted"

    return Loss("what it has", find)


COMMANDS = reset
