"""`broker serve --apply`: applies declarations before the broker serves.

A process of its own does so (applier.py), whose imports the parent process must not keep in memory.
"""

from multiprocessing.connection import Connection

from broker.app.config import AppConfig
from broker.app.settings.fields import Settings
from broker.cli.server.announcements import say
from broker.cli.server.child_process import CONTEXT, start_deaf
from broker.client.stop import Misuse, Stop
from broker.model.audiences import split_list


def check_apply(settings: Settings) -> None:
    """Raises Misuse."""
    if settings.apply and not settings.project:
        raise Misuse("--apply needs the project that the files are of: give --project, or set BROKER_PROJECT")


def apply_at_start(settings: Settings, config: AppConfig) -> None:
    """Returns once the declarations hold.  Raises Stop."""
    if not settings.apply:
        return
    project = f"projects/{settings.project.removeprefix('projects/')}"
    log = settings.log_level, settings.log_format
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(
        target=_apply, args=(config, split_list(settings.apply), project, log, theirs), name="apply"
    )
    start_deaf(process)
    theirs.close()
    try:
        exit_code, text = ours.recv()
    except EOFError:
        exit_code, text = 1, "the process that applies the declarations ended without a word"
    except KeyboardInterrupt:
        process.terminate()
        raise
    finally:
        process.join()
        ours.close()
    if exit_code:
        raise (Misuse if exit_code == Misuse.exit_code else Stop)(f"--apply: {text}")
    say(text)


def _apply(config: AppConfig, files: list[str], project: str, log: tuple[str, str], pipe: Connection) -> None:
    from broker.cli.server.applier import run_applier

    run_applier(config, files, project, log, pipe)
