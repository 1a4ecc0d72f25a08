"""Handlers of the settings that the users of a project share."""

from base64 import b64decode, b64encode
from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, encode_list
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.previews import done_or_preview, safeguards_of_query
from broker.core.viewing.message_views import MessageViews
from broker.features.project_settings.kinds import MESSAGE_TEMPLATE, Kind, Settings
from broker.features.project_settings.rows import SharedSetting
from broker.features.project_settings.service import SharedSettingsService
from broker.model.field_mask import check_field_mask, parse_field_mask
from broker.model.message_preview import WHOLE
from broker.model.page import parse_page
from broker.model.timestamps import format_timestamp


async def create(kind: Kind, service: SharedSettingsService, call: Call) -> bytes:
    return encode_resource(setting_json(await service.create(call.name, decode_settings(kind, call.body))))


async def get(kind: Kind, service: SharedSettingsService, views: MessageViews, call: Call) -> bytes:
    return encode_resource(await _as_seen(kind, views, call, await service.get(call.name)))


async def list_all(kind: Kind, service: SharedSettingsService, views: MessageViews, call: Call) -> bytes:
    found, token = await service.list_all(call.name, parse_page(*decode_page_parameters(call.query)))
    return encode_list(kind.collection, [await _as_seen(kind, views, call, each) for each in found], token)


async def update(kind: Kind, service: SharedSettingsService, views: MessageViews, call: Call) -> bytes:
    wanted, paths = decode_update(kind, call)
    return encode_resource(await _as_seen(kind, views, call, await service.update(call.name, wanted, paths)))


async def delete(service: SharedSettingsService, call: Call) -> bytes:
    etag, safeguards = call.query.get("etag", ""), safeguards_of_query(call)
    return await done_or_preview(call, await service.delete(call.name, etag=etag, safeguards=safeguards))


async def _as_seen(kind: Kind, views: MessageViews, call: Call, setting: SharedSetting) -> dict[str, Any]:
    """A message template is shown as a message of its topic would be."""
    body = setting_json(setting)
    if kind is not MESSAGE_TEMPLATE:
        return body
    view = await views.of_permitted(call, body["topic"])
    data = b64decode(body.get("data", ""))
    attributes = msgspec.json.encode(body.get("attributes", {})).decode()
    shown = await view.show(attributes, data, len(data), WHOLE)
    if shown.masked is not None:
        body |= {"data": b64encode(shown.data).decode()} if data else {}
        body |= {"attributes": msgspec.Raw(shown.attributes.encode())} if "attributes" in body else {}
        body["masked"] = shown.masked
    return body


# --- JSON ---------------------------------------------------------------------------------------------------


def decode_settings(kind: Kind, body: bytes) -> Settings:
    """Raises InvalidArgument."""
    return decode_request(msgspec.json.Decoder(kind.fields), body)


def decode_update(kind: Kind, call: Call) -> tuple[Settings, list[str]]:
    """Returns the wanted values and the fields to change; without a mask, those of the body.

    Raises InvalidArgument.
    """
    wanted = decode_settings(kind, call.body)
    paths = parse_field_mask(call.update_mask or "")
    if not paths:
        given = msgspec.json.decode(call.body or b"{}")
        names = {field.encode_name: field.name for field in msgspec.structs.fields(kind.fields)}
        paths = [names.get(each, each) for each in given if names.get(each, each) in kind.changeable]
    output = ("name", "create_time", "update_time", "etag")
    check_field_mask(paths, resource=kind.noun, mutable=kind.changeable, immutable=output)
    return wanted, paths


def setting_json(setting: SharedSetting) -> dict[str, Any]:
    return {
        "name": setting.name,
        **setting.definition,
        "createTime": format_timestamp(setting.created_at),
        "updateTime": format_timestamp(setting.updated_at),
        "etag": setting.etag,
    }
