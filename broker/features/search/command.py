"""`broker search`."""

from collections.abc import Sequence

import click

from broker.client.calling import Session, calling
from broker.client.output import Shown
from broker.features.search.result import ResultKind


@calling("search", "broker search orders", "broker search team=sales --max 20")
@click.option("--max", "most", metavar="N", type=click.IntRange(1), help="At most so many.")
@click.option(
    "--kind",
    "kinds",
    metavar="KIND",
    multiple=True,
    type=click.Choice([kind.lower().replace("_", "-") for kind in ResultKind]),
    help="Only this kind, such as topic or policy; may be given several times.",
)
@click.argument("text")
def search(session: Session, *, text: str, kinds: Sequence[str], most: int | None) -> Shown:
    """Find names, labels, operations, principals or a message id in a project; needs this broker."""
    query = {"q": text}
    if kinds:
        query["kinds"] = ",".join(kind.upper().replace("-", "_") for kind in kinds)
    found = session.api.all_of(f"{session.project}:search", "results", query, most)
    return Shown(
        data=found,
        columns=("kind", "name", "matched", "value"),
        rows=[
            [
                result["kind"].lower().replace("_", " "),
                result["name"].removeprefix(f"{session.project}/"),
                result["matchedField"],
                result["matchedValue"],
            ]
            for result in found
        ],
        whole=("kind", "name"),
        minor=("value",),
        nothing=f"The caller may see nothing that has {text} in it.",
    )


COMMANDS = search
