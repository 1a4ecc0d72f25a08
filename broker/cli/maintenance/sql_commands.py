"""`broker sql`: grants roles of PostgreSQL to publish and acknowledge in their own transactions (J7)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.app.settings.fields import Settings
from broker.cli.maintenance.bootstrap import used_database
from broker.cli.server.announcements import say
from broker.client.stop import Misuse, Stop
from broker.db.embedded.cluster import Cluster
from broker.features.outbox import application_functions as functions_of
from broker.features.outbox.application_functions import CannotGrant
from broker.features.outbox.refused_messages import list_refused, return_to_outbox
from broker.observability.log import set_up_log


def grant_role(settings: Settings, role: str, functions: str) -> int:
    """Returns the exit code, as all of these.  Raises Stop."""
    project = _project(settings)
    with _database(settings) as (url, schema):
        if not settings.database_url and functions_of.make_role(
            _superuser_url(settings), role=role, functions=functions
        ):
            say(f"The role {role} is made, with a schema of its name.")
        functions_of.grant(url, schema=schema, role=role, project=project, functions=functions)
    say(f"{role} may call {functions}.publish, .acknowledge and .nack for {project}.")
    return 0


def revoke_role(settings: Settings, role: str) -> int:
    """Raises Stop, also if there is no such grant."""
    project = _project(settings)
    with _database(settings) as (url, schema):
        if not functions_of.revoke(url, schema=schema, role=role, project=project):
            raise Stop(f"{role} has no grant for {project}")
    say(f"{role} may not publish or acknowledge in {project} any more; what it has committed is published.")
    return 0


def show_grants(settings: Settings) -> int:
    """Raises Stop."""
    with _database(settings) as (url, schema):
        for each in functions_of.list_grants(url, schema=schema):
            where = ", ".join(each.functions) or "none: the role was made anew, or lost its rights; grant it again"
            say(f"{each.role}  {each.project}  functions in {where}")
    return 0


def show_refused(settings: Settings, *, again: bool) -> int:
    """`again`: try them once more.  Raises Stop."""
    with _database(settings) as (url, schema):
        if again:
            returned, left = return_to_outbox(url, schema=schema)
            say(f"{returned:,} are staged again; {left:,} are left, for there is no topic of their name.")
            return 0
        for each in list_refused(url, schema=schema):
            key = f" key {each.ordering_key!r}" if each.ordering_key else ""
            at = f"{each.refused_at:%Y-%m-%dT%H:%M:%SZ}"
            say(f"{each.n}  {at}  {each.topic}{key}  {each.size} bytes: {each.reason}")
    return 0


def _superuser_url(settings: Settings) -> str:
    """Returns the superuser's URL of the embedded PostgreSQL, whose roles nobody else creates."""
    return Cluster(Path(settings.data_dir)).superuser_url


def _project(settings: Settings) -> str:
    if not settings.project:
        raise Misuse("--project PROJECT says which project the role is to publish and acknowledge in")
    return f"projects/{settings.project}"


@contextmanager
def _database(settings: Settings) -> Iterator[tuple[str, str]]:
    set_up_log(settings.log_level, settings.log_format)
    with used_database(settings) as (url, schema):
        try:
            yield url, schema
        except CannotGrant as error:
            raise Stop(str(error)) from error
