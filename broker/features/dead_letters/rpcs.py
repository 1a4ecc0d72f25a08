"""Rows of the calls that list, redrive, discard and edit dead letters, and recover pushes."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import CONSUME, LOOK_AT_BACKLOG
from broker.api.rest.routes import Rest
from broker.api.row import PAGE, PROJECT, SUBSCRIPTION, Row
from broker.api.rpc import Audit, Kind, Size
from broker.core.viewing.message_views import MessageViews
from broker.features.dead_letters.discarding.rest import discard
from broker.features.dead_letters.discarding.service import DiscardService
from broker.features.dead_letters.editing.rest import edit_dead_letter
from broker.features.dead_letters.editing.service import EditService
from broker.features.dead_letters.project.rest import list_project_dead_letters
from broker.features.dead_letters.project.service import ProjectDeadLetterService
from broker.features.dead_letters.recovery.rest import recover, replay_missing
from broker.features.dead_letters.recovery.service import PushReplayService
from broker.features.dead_letters.redriving.rest import redrive
from broker.features.dead_letters.redriving.service import RedriveService
from broker.features.dead_letters.rest import list_dead_letters
from broker.features.dead_letters.service import DeadLetterService
from broker.model.operation_verb import Verb


def make_rpcs(
    *,
    dead_letters: DeadLetterService,
    project_dead_letters: ProjectDeadLetterService,
    redrives: RedriveService,
    discards: DiscardService,
    edits: EditService,
    push_replays: PushReplayService,
    views: MessageViews,
) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="ListDeadLetters", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=LOOK_AT_BACKLOG,
            rest=[
                Rest(
                    "GET", f"{SUBSCRIPTION}/deadLetters", "ListDeadLetters",
                    partial(list_dead_letters, dead_letters, views),
                    (*PAGE, "attribute:*", "filter", "groupBy", "hour", "previewBytes", "reason", "status"),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="ListProjectDeadLetters",
            kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=LOOK_AT_BACKLOG,  # on the project: shows messages of all its subscriptions
            rest=[
                Rest(
                    "GET", f"{PROJECT}/deadLetters", "ListProjectDeadLetters",
                    partial(list_project_dead_letters, project_dead_letters, views),
                    (*PAGE, "filter", "groupBy", "orderBy", "previewBytes"),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="Redrive", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=Verb.REDRIVE,
            needs=CONSUME,  # touches only the subscriptions of the dead-letter topic that the caller may consume
            rest=[Rest("POST", f"{SUBSCRIPTION}:redrive", "Redrive", partial(redrive, redrives), ())],
            grpc=[],
        ),
        Row(
            name="Discard", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=CONSUME,  # as a redrive
            rest=[Rest("POST", f"{SUBSCRIPTION}:discard", "Discard", partial(discard, discards), ())],
            grpc=[],
        ),
        Row(
            name="EditDeadLetter", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.MESSAGES, starts=None,
            needs=CONSUME,  # as a redrive
            rest=[
                Rest(
                    "POST", f"{SUBSCRIPTION}:editDeadLetter", "EditDeadLetter",
                    partial(edit_dead_letter, edits), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="RecoverPushes", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=Verb.RECOVER,
            needs=CONSUME,  # as a redrive
            rest=[
                Rest("POST", f"{SUBSCRIPTION}:recover", "RecoverPushes", partial(recover, push_replays), ()),
            ],
            grpc=[],
        ),
        Row(
            name="ReplayMissingPushes",
            kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=Verb.REPLAY_MISSING,
            needs=CONSUME,  # as a seek
            rest=[
                Rest(
                    "POST", f"{SUBSCRIPTION}:replayMissing", "ReplayMissingPushes",
                    partial(replay_missing, push_replays), (),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
