"""`broker export`."""

import click
import yaml

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.output import Shown
from broker.features.declarations.form import exported, policy_form, short
from broker.features.declarations.reading import COLLECTIONS
from broker.features.declarations.state import read_policy, read_state


@calling("export", "broker export > shop.yaml")
@click.option("--policies/--no-policies", default=True, help="With who has which roles.", show_default=True)
def export(session: Session, *, policies: bool) -> Shown:
    """Write what a project has as `broker apply` reads it.

    Of secrets there are fingerprints, which `apply` leaves alone. What a schema said before its newest revision,
    snapshots and messages are not in it.
    """
    project = session.project
    state = read_state(session.api, project)
    found: Json = {}
    for collection in COLLECTIONS:
        for name, resource in sorted(state.resources[collection].items()):
            body = exported(resource, collection, project)
            bindings = policy_form(read_policy(session.api, name)) if policies and collection != "schedules" else []
            if bindings:
                body["policy"] = {"bindings": bindings}
            found.setdefault(collection, {})[short(name, collection, project)] = body
    if policies and (bindings := policy_form(read_policy(session.api, project))):
        found["policy"] = {"bindings": bindings}
    return Shown(data=found, script=to_yaml(found))


def to_yaml(found: Json) -> str:
    """Formats as YAML, in the given order; texts of several lines are blocks."""
    return yaml.dump(found, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100) if found else "{}\n"


_LINE_BREAKS = "\x85\u2028\u2029"  # in YAML 1.1; PyYAML writes them as they are where nothing quotes them


class _Dumper(yaml.SafeDumper):
    pass


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if any(character in text for character in _LINE_BREAKS):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)

COMMANDS = export
