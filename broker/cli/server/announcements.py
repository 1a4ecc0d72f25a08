"""Messages of a command on standard output for the user who started it.  The log is written to standard error."""

import shlex
from pathlib import Path

from broker.app.config import serves_console
from broker.app.settings.fields import Settings
from broker.cli.server.ports import Ports
from broker.client import terminal
from broker.db.database_url import without_password
from broker.net import listener as listening
from broker.net.tls.expiry import is_self_signed
from broker.version import version


def say(line: str) -> None:
    """Prints a line at once.  If standard output is closed, the line is dropped and the broker goes on."""
    try:
        terminal.write_line(line)
    except BrokenPipeError:
        terminal.discard_output()


def say_what_runs(settings: Settings, *, postgres: int, schema: str, revision: str) -> None:
    """Prints the broker's version, database (without its password), schema and number of processes."""
    where = (
        without_password(settings.database_url)
        if settings.database_url
        else f"in {Path(settings.data_dir).absolute()} (embedded)"
    )
    processes = "1 process" if settings.workers == 1 else f"{settings.workers} processes"
    say(f"broker {version()}, {processes}, on PostgreSQL {postgres} {where}, schema {schema} at {revision}")


def say_ready(settings: Settings, ports: Ports) -> None:
    """Prints where the broker listens, and how to configure Google's clients."""
    say(f"Ready: {listening.url(ports.main, secure=ports.is_secure)}")
    if serves_console(settings.console, auth=settings.auth, host=settings.host):
        how = " (`broker console` opens it signed in)" if settings.auth == "required" else ""
        say(f"    Console: {listening.url(ports.main, secure=ports.is_secure)}/console/{how}")
    if ports.tls:
        address = listening.emulator_host(ports.main)
        say(f"    Google's libraries: api_endpoint {address}; PUBSUB_EMULATOR_HOST is for cleartext")
        say(f"    export CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB=https://{address}/")
        if is_self_signed(ports.tls.certificate):
            path = Path(settings.tls_certificate).absolute()
            for name in (
                "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
                "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
                "CURL_CA_BUNDLE",
            ):
                say(f"    export {name}={shlex.quote(str(path))}")
    if ports.cleartext:
        say(f"    Without TLS: {listening.url(ports.cleartext)}")
    if ports.metrics:
        say(f"    Metrics: {listening.url(ports.metrics)}/metrics")
    if in_cleartext := ports.cleartext or (None if ports.tls else ports.main):
        say(f"    export PUBSUB_EMULATOR_HOST={listening.emulator_host(in_cleartext)}")
