"""Registers the calls about share links."""

from broker.access.share_links.share_link_rows import delete_ended_share_links
from broker.core.context.core import Core
from broker.features.feature import Feature
from broker.features.share_links.rpcs import make_rpcs
from broker.features.share_links.service import Authorize, ShareLinkService


def register(core: Core, *, authorize: Authorize | None, has_console: bool) -> Feature:
    """Registers the feature.  `authorize` is None if anybody may do anything."""
    service = ShareLinkService(core.database, core.clock, authorize=authorize, has_console=has_console)
    return Feature(rpcs=make_rpcs(service), clean_ups=[delete_ended_share_links])
