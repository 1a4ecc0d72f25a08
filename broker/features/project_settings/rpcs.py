"""The rows of calls: five for each kind of settings."""

from collections.abc import Mapping, Sequence
from functools import partial

from broker.api.permissions import Need, Needs, On
from broker.api.rest.routes import Rest
from broker.api.row import PAGE, PROJECT, Row
from broker.api.rpc import Audit, Kind, Size
from broker.core.viewing.message_views import MessageViews
from broker.features.project_settings import rest
from broker.features.project_settings.kinds import KINDS
from broker.features.project_settings.service import SharedSettingsService
from broker.model.preview import SAFEGUARDS


def make_rpcs(services: Mapping[str, SharedSettingsService], views: MessageViews) -> Sequence[Row]:
    """`services`: by collection."""
    return [row for collection in KINDS for row in _rows(collection, services[collection], views)]


def _rows(collection: str, service: SharedSettingsService, views: MessageViews) -> Sequence[Row]:
    kind = KINDS[collection]
    noun, one, permission = kind.noun, f"{PROJECT}/{collection}/*", f"pubsub.{collection}"
    nouns = f"{noun}s"
    # fmt: off
    return [
        Row(
            name=f"Settings.Create{noun}", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
            needs=Needs(Need(f"{permission}.create", on=On.PROJECT)),
            rest=[Rest("PUT", one, f"Create{noun}", partial(rest.create, kind, service), ())],
            grpc=[],
        ),
        Row(
            name=f"Settings.Get{noun}", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need(f"{permission}.get", on=On.PROJECT)),
            rest=[Rest("GET", one, f"Get{noun}", partial(rest.get, kind, service, views), ())],
            grpc=[],
        ),
        Row(
            name=f"Settings.List{nouns}", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need(f"{permission}.list")),
            rest=[
                Rest(
                    "GET", f"{PROJECT}/{collection}", f"List{nouns}",
                    partial(rest.list_all, kind, service, views), PAGE,
                ),
            ],
            grpc=[],
        ),
        Row(
            name=f"Settings.Update{noun}", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.UPDATE, starts=None,
            needs=Needs(Need(f"{permission}.update", on=On.PROJECT)),
            rest=[
                Rest(
                    "PATCH", one, f"Update{noun}", partial(rest.update, kind, service, views), ("updateMask",),
                ),
            ],
            grpc=[],
        ),
        Row(
            name=f"Settings.Delete{noun}", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need(f"{permission}.delete", on=On.PROJECT)),
            rest=[Rest("DELETE", one, f"Delete{noun}", partial(rest.delete, service), ("etag", *SAFEGUARDS))],
            grpc=[],
        ),
    ]
    # fmt: on
