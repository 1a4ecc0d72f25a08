"""Commits that a standby should have confirmed, and has not."""

from psycopg import OperationalError
from psycopg.errors import Diagnostic


def is_unreplicated(notice: Diagnostic) -> bool:
    """Whether a commit is answered though the standby that it waited for has not got it.

    PostgreSQL does so, with a warning, when the wait is cancelled (pg_cancel_backend, the end of the session): the
    commit is on the primary's disk then, and lost if the standby takes over.
    """
    return notice.source_function == "SyncRepWaitForLSN"


def unreplicated() -> OperationalError:
    """Returns the error for a commit whose outcome is unknown: it holds unless the standby takes over."""
    return OperationalError("the wait for the standby was cancelled: what was committed may not be there")
