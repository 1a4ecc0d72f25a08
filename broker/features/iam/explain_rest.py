"""The call that explains why a principal has a permission or lacks it, an extension."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from broker.access.policies.authorizer import Required
from broker.access.policies.explanation import Explanation, GivenRole, Level
from broker.access.principals.policy import ABOVE_PROJECTS
from broker.api.permissions import policy_permissions
from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.features.iam.policy_service import PolicyService

_READ_POLICY = policy_permissions("getIamPolicy")


class ExplainAccessRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    principal: str = ""
    permission: str = ""
    resource: str = ""


_decoder = msgspec.json.Decoder(ExplainAccessRequest)


async def explain_access(service: PolicyService, call: Call) -> bytes:
    request = decode_request(_decoder, call.body)
    explanation = await service.explain(
        call.caller,
        request.principal,
        request.permission,
        project=call.name,
        name=request.resource or call.name,
    )
    if explanation is None:
        return encode_resource(
            {"access": "GRANTED", "explanation": "Authentication is off: anybody may do anything."}
        )
    return encode_resource(explanation_json(await _as_shown_to(call, explanation)))


async def _as_shown_to(call: Call, explanation: Explanation) -> Explanation:
    """Returns the explanation without the contents of policies that the caller may not read."""
    assert call.gate is not None
    hidden = {name for name in explanation.chain if not await call.gate.may(call.caller, _to_read(name))}
    return replace(
        explanation,
        others=[given for given in explanation.others if given.resource not in hidden],
        groups=[given for given in explanation.groups if given.resource not in hidden],
        hidden=hidden,
    )


def _to_read(name: str) -> Required:
    """Returns the permission that a caller needs to read the policy of a resource, a project or
    the installation.
    """
    parts = name.split("/")
    collection = parts[2] if name != ABOVE_PROJECTS and len(parts) > 2 else ""
    return Required(_READ_POLICY[collection], name)


def explanation_json(explanation: Explanation) -> Mapping[str, Any]:
    body: dict[str, Any] = {
        "access": "GRANTED" if explanation.is_granted else "NOT_GRANTED",
        "explanation": explanation.sentence,
    }
    if explanation.is_granted:
        body["grantedBy"] = [_given_json(given, explanation) for given in explanation.granted_by]
    else:
        body["rolesWithPermission"] = explanation.roles_with_permission
    return body


def _given_json(given: GivenRole, explanation: Explanation) -> Mapping[str, str]:
    body = {"level": given.level.value}
    if given.level is not Level.INSTALLATION:
        body["resource"] = given.resource
    is_hidden = given.resource in explanation.hidden and given.level is not Level.CREDENTIAL
    return body if is_hidden else body | {"role": given.role, "member": given.member}
