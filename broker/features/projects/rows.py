"""Reads the names of projects, which are part of the names of their resources."""

from collections.abc import Sequence

from sqlalchemy import text

from broker.db.driver.database import ResourceConnection
from broker.model.page import Page

# Tables with many names are not scanned: each step of `named` goes to the first name after those of the last
# project.  All names of a project, and no others, are between "projects/p/" and "projects/p0": "0" comes after "/".
_NAMED = (
    *("topics", "subscriptions", "snapshots", "payload_schemas", "schedules", "operations", "custom_roles"),
    "shared_settings",
)
_FIRST_OF_TABLE = "(SELECT min(name) FROM {} WHERE name >= {{start}} AND name < 'projects0')"
_FIRST = f"least({', '.join(map(_FIRST_OF_TABLE.format, _NAMED))})"
_PROJECTS = text(f"""
    WITH RECURSIVE named (project) AS (
        SELECT 'projects/' || split_part({_FIRST.format(start="'projects/'")}, '/', 2)
        UNION ALL
        SELECT 'projects/' || split_part(next.name, '/', 2)
        FROM named, LATERAL (SELECT {_FIRST.format(start="project || '0'")} AS name) AS next
        WHERE project IS NOT NULL
    )
    SELECT project FROM (
        SELECT project COLLATE "C" FROM named
        UNION SELECT project FROM service_accounts
        UNION SELECT 'projects/' || split_part(name, '/', 2) FROM api_keys
        UNION SELECT 'projects/' || split_part(resource, '/', 2) FROM policies WHERE resource <> ''
        UNION SELECT project FROM project_settings
        UNION SELECT project FROM project_quotas
    ) AS projects (project)
    WHERE project COLLATE "C" > :after
    ORDER BY project COLLATE "C"
    LIMIT :size
""")  # noqa: S608  (of names of this module alone)


async def list_projects(connection: ResourceConnection, *, page: Page) -> Sequence[str]:
    """Returns up to one project more than a page, by name.  It lists the projects that have a resource, a
    credential, a role, a policy or a setting.
    """
    return (await connection.scalars(_PROJECTS, {"after": page.after, "size": page.size + 1})).all()
