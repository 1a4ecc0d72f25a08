"""Registers the settings of projects, and gives the core their masking rules."""

from broker.core.context.core import Core
from broker.core.viewing.message_views import MessageViews
from broker.features.feature import Feature
from broker.features.project_settings.kinds import KINDS
from broker.features.project_settings.rows import read_masking_rules
from broker.features.project_settings.rpcs import make_rpcs
from broker.features.project_settings.service import SharedSettingsService


def make_views(core: Core) -> MessageViews:
    """The views of messages with the masking rules of projects."""
    return MessageViews(core.resources, core.resources.add(read_masking_rules))


def register(core: Core) -> Feature:
    services = {
        collection: SharedSettingsService(kind, core.database, core.clock, core.wake_ups)
        for collection, kind in KINDS.items()
    }
    return Feature(rpcs=make_rpcs(services, core.views))
