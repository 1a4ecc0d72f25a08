"""The calls of google.iam.v1.IAMPolicy, and access policies as google.iam.v1.Policy."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from broker.access.principals.policy import Binding, Policy, check_version, make_bindings
from broker.api.generated import messages
from broker.api.google.call import Answer, ResourceCall
from broker.api.rest.codec.requests import convert_json
from broker.features.iam.policy_service import PolicyService
from broker.model.errors import InvalidArgument


def bindings_from(message: Any) -> tuple[Binding, ...]:
    """Decodes the bindings of a policy.  Raises InvalidArgument."""
    check_version(message.version)
    if message.audit_configs:
        raise InvalidArgument("The field auditConfigs is not supported: what is logged is said by a setting.")
    for binding in message.bindings:
        if binding.HasField("condition"):
            raise InvalidArgument(
                f"The field bindings.condition is not supported: conditions are not evaluated "
                f"(bindings.role={binding.role[:200]}, condition.title={binding.condition.title[:100]}). "
                f"Bind the role on the resource that it is meant for."
            )
    return make_bindings((binding.role, list(binding.members)) for binding in message.bindings)


def policy_message(policy: Policy) -> Any:
    message = messages.IamPolicy(version=policy.version, etag=policy.etag)
    for binding in policy.bindings:
        message.bindings.add(role=binding.role, members=sorted(binding.members))
    return message


async def get_iam_policy(service: PolicyService, call: ResourceCall, request: Any) -> Answer:
    check_version(request.options.requested_policy_version)
    return Answer(policy_message(await service.get_policy(request.resource)))


async def set_iam_policy(service: PolicyService, call: ResourceCall, request: Any) -> Answer:
    # Of the fields that an update mask can name, bindings and etag, a policy consists: all are replaced.
    bindings = bindings_from(request.policy)
    return Answer(policy_message(await service.set_policy(request.resource, bindings, request.policy.etag)))


async def test_iam_permissions(service: PolicyService, call: ResourceCall, request: Any) -> Answer:
    permissions = await service.test_permissions(call.caller, request.resource, list(request.permissions))
    message = messages.TestIamPermissionsResponse(permissions=permissions)
    if not call.extension_fields or "resources" not in call.extension_fields:
        return Answer(message)
    resources = convert_json(dict(call.extension_fields), _Tested).resources
    if request.resource.count("/") > 1:
        raise InvalidArgument(
            "resources can be given only in a test of a project: POST /v1/projects/{project}:testIamPermissions "
            f"(resource={request.resource[:300]})."
        )
    held = await service.test_permissions_on(call.caller, request.resource, list(request.permissions), resources)
    return Answer(message, held, _permissions_by_resource)


class _Tested(msgspec.Struct):
    resources: list[str] = []


def _permissions_by_resource(held: Mapping[str, Sequence[str]]) -> Mapping[str, Any]:
    return {"resources": [{"name": name, "permissions": names} for name, names in held.items()]}
