"""The call that searches a project, an extension."""

from collections.abc import Collection, Mapping
from typing import Any

from broker.access.policies.authorizer import Required
from broker.api import permissions
from broker.api.permissions import Need, Needs, policy_permissions, visible_in
from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters
from broker.api.rest.codec.resources import encode_resource
from broker.features.search.result import Result, ResultKind, Scope, parse_kinds, parse_search_page, parse_text
from broker.features.search.service import SearchService
from broker.model.errors import PermissionDenied

# What callers need to find resources of a kind: the permission to list them.
NEEDED: Mapping[ResultKind, Needs] = {
    ResultKind.TOPIC: Needs(Need("pubsub.topics.list", listed="topics")),
    ResultKind.SUBSCRIPTION: Needs(Need("pubsub.subscriptions.list", listed="subscriptions")),
    ResultKind.SNAPSHOT: Needs(Need("pubsub.snapshots.list", listed="snapshots")),
    ResultKind.SCHEMA: Needs(Need("pubsub.schemas.list", listed="schemas")),
    ResultKind.SCHEDULE: Needs(Need("pubsub.schedules.list")),
    ResultKind.OPERATION: permissions.LIST_SUBSCRIPTIONS,
    ResultKind.SERVICE_ACCOUNT: Needs(Need("iam.serviceAccounts.list", listed="serviceAccounts")),
    ResultKind.API_KEY: Needs(Need("apikeys.keys.list")),
    ResultKind.ROLE: Needs(Need("iam.roles.list")),
}
_READ_POLICY = policy_permissions("getIamPolicy")  # by collection


async def search_project(service: SearchService, call: Call) -> bytes:
    async def may_read(topic: str) -> None:
        if call.gate is not None:
            await call.gate.allow(call.caller, permissions.LOOK, topic)

    text = parse_text(call.query.get("q", ""))
    page = parse_search_page(*decode_page_parameters(call.query))
    scope = await _scope_of(call, parse_kinds(call.query.get("kinds", "")))
    found, token = await service.search(scope, text, page, may_read=may_read, hung_up=call.exchange.hung_up)
    body: dict[str, Any] = {"results": [result_json(result) for result in found]} if found else {}
    if token:
        body["nextPageToken"] = token
    return encode_resource(body | {"searchedKinds": scope.kinds})


def result_json(result: Result) -> Mapping[str, str]:
    return {
        "kind": result.kind,
        "name": result.name,
        "matchedField": result.field,
        "matchedValue": result.value,
    }


# --- what the caller may find -----------------------------------------------------------------------------------


async def _scope_of(call: Call, asked: Collection[ResultKind]) -> Scope:
    """Returns what the caller may find of the kinds that are asked for.

    Raises PermissionDenied (the caller may list no resource of these kinds), Unauthenticated, Unavailable.
    """
    names: dict[ResultKind, Collection[str] | None] = {}
    refused = None
    for kind, needs in NEEDED.items():
        if kind not in asked:
            continue
        try:
            required = [] if call.gate is None else await call.gate.allow(call.caller, needs, call.name)
            names[kind] = visible_in(required, call.name)
        except PermissionDenied as error:
            refused = refused or error
    collections: list[str] = []
    if ResultKind.POLICY in asked:
        collections = [collection for collection in _READ_POLICY if await _may_read_policies(call, collection)]
    if collections:
        names[ResultKind.POLICY] = None
    if refused is not None and not names:
        raise refused
    if ResultKind.MESSAGE in asked:
        names[ResultKind.MESSAGE] = None
    return Scope(project=call.name, names=names, policies_of=collections)


async def _may_read_policies(call: Call, collection: str) -> bool:
    required = Required(_READ_POLICY[collection], call.name)
    return call.gate is None or await call.gate.may(call.caller, required)
