"""Rows of the table of calls for share links."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import Need, Needs, On
from broker.api.rest.routes import Rest
from broker.api.row import PAGE, SUBSCRIPTION, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.share_links import rest
from broker.features.share_links.service import ShareLinkService
from broker.model.preview import SAFEGUARDS

_LINK = f"{SUBSCRIPTION}/shareLinks/*"


def make_rpcs(service: ShareLinkService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="CreateShareLink", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
            # A link gives access, as a policy does.  The service checks what else its creator needs.
            needs=Needs(Need("pubsub.subscriptions.setIamPolicy")),
            rest=[
                Rest(
                    "POST", f"{SUBSCRIPTION}:createShareLink", "CreateShareLink",
                    partial(rest.create_share_link, service), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="ListShareLinks", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.subscriptions.getIamPolicy")),
            rest=[
                Rest(
                    "GET", f"{SUBSCRIPTION}/shareLinks", "ListShareLinks",
                    partial(rest.list_share_links, service), PAGE,
                ),
            ],
            grpc=[],
        ),
        Row(
            name="DeleteShareLink", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("pubsub.subscriptions.setIamPolicy", on=On.ABOVE)),
            rest=[
                Rest(
                    "DELETE", _LINK, "DeleteShareLink", partial(rest.delete_share_link, service), SAFEGUARDS
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
