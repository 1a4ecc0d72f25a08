"""Statements that find the resources that refer to service accounts and roles."""

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, literal, select

from broker.access.credentials.account_rows import list_keys
from broker.access.principals.service_account import ServiceAccount
from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import api_keys, policies, subscriptions
from broker.model.preview import Reference, Referrer


async def references_to_account(connection: ResourceConnection, account: ServiceAccount) -> Sequence[Reference]:
    """Returns its keys, the policies that grant it a role, and the subscriptions whose pushes carry its tokens."""
    keys = await list_keys(connection, email=account.email)
    email = subscriptions.c.settings[("pushConfig", "oidcToken", "serviceAccountEmail")].astext
    pushed = select(subscriptions.c.name).where(email == account.email, subscriptions.c.detached.is_(False))
    pushes = (await connection.scalars(pushed.order_by(subscriptions.c.name))).all()
    return [
        *_references((f"{account.name}/keys/{key.key_id}" for key in keys), Referrer.KEY),
        *await _policies(connection, policies.c.bindings.contains([{"members": [account.member]}])),
        *_references(pushes, Referrer.PUSH_TOKEN),
    ]


async def references_to_role(connection: ResourceConnection, name: str) -> Sequence[Reference]:
    """Returns the policies that grant a role, and the API keys that have it."""
    having = select(api_keys.c.name).where(literal(name) == api_keys.c.roles.any_())
    keys = (await connection.scalars(having.order_by(api_keys.c.name))).all()
    return [
        *await _policies(connection, policies.c.bindings.contains([{"role": name}])),
        *_references(keys, Referrer.API_KEY),
    ]


async def _policies(connection: ResourceConnection, granting: ColumnElement[bool]) -> Sequence[Reference]:
    """Returns the policies of resources and projects; the policy of the installation has no
    name, and is left out.
    """
    found = select(policies.c.resource).where(granting, policies.c.resource != "").order_by(policies.c.resource)
    return _references((await connection.scalars(found)).all(), Referrer.POLICY)


def _references(names: Iterable[str], referrer: Referrer) -> Sequence[Reference]:
    return [Reference(name=name, referrer=referrer) for name in names]
