"""Registers the reports on pushes, test pushes, and pausing of pushes."""

from broker.core.context.core import Core
from broker.core.pushing.push_history_rows import delete_old_push_attempts
from broker.core.resources.pause_service import PauseService
from broker.features.feature import Feature
from broker.features.push_status.rpcs import make_rpcs
from broker.features.push_status.service import PushService, Tester


def register(core: Core, *, tester: Tester, pauses: PauseService) -> Feature:
    return Feature(
        rpcs=make_rpcs(pushes=PushService(core.database, core.clock, tester), pauses=pauses),
        clean_ups=[delete_old_push_attempts],
    )
