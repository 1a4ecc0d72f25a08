"""`broker projects`."""

from broker.client.calling import Session, calling
from broker.client.command_line import Group
from broker.client.output import Shown


@calling("list", "broker projects list", "broker projects list --json")
def list_(session: Session) -> Shown:
    """List the projects that the caller may see; needs this broker."""
    found = session.api.all_of("projects", "projects")
    return Shown(
        data=found,
        columns=("project", "name"),
        rows=[[project["projectId"], project["name"]] for project in found],
        whole=("project",),
        minor=("name",),
        nothing="The caller may see no project, or there is none.",
    )


COMMANDS = Group("projects", help="Projects: what topics, subscriptions and roles are in.", commands=[list_])
