"""The files of TLS: read at the start, and again when they have changed."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from broker.app.settings.fields import Settings, option
from broker.client.stop import Misuse
from broker.model.certificate_validity import ValidityState, span_in_words
from broker.model.errors import os_reason
from broker.net.tls.expiry import in_words, read_validity
from broker.net.tls.material import TlsMaterial, UnusableTls, make_context
from broker.observability.log import extra, fields_of

REMIND_AFTER = timedelta(days=1)  # of a certificate that should be renewed
CHECK_SECONDS = 5.0  # between two checks whether the files have changed

_OPTIONS = {"certificate": "tls_certificate", "key": "tls_key", "client_ca": "tls_client_ca"}

logger = logging.getLogger(__name__)

State = Mapping[str, object]  # of each file: what tells that it has changed


class TlsFiles:
    """The certificate, the key and the clients' authorities that the settings name; `material`: as they are."""

    def __init__(self, settings: Settings) -> None:
        """Raises UnusableTls, as `read` does."""
        self._paths = {
            what: Path(path) for what, name in _OPTIONS.items() if (path := str(getattr(settings, name)))
        }
        self._client_required = settings.tls_client_certificates == "required"
        self.state = self.check()
        self.material = self.read()

    def read(self) -> TlsMaterial:
        """Raises UnusableTls, which names the option and the file."""
        read: dict[str, bytes] = {}
        for what, path in self._paths.items():
            try:
                read[what] = path.read_bytes()
            except OSError as error:
                raise UnusableTls(what, self._why(what, os_reason(error))) from None
        material = TlsMaterial(
            certificate=read["certificate"],
            key=read["key"],
            client_ca=read.get("client_ca", b""),
            client_required=self._client_required,
        )
        try:
            make_context(material)
        except UnusableTls as error:
            raise UnusableTls(error.what, self._why(error.what, str(error))) from None
        return replace(material, validity=read_validity(material.certificate))

    def _why(self, what: str, why: str) -> str:
        return f"{option(_OPTIONS[what])} {self._paths[what]}: {why}"

    def check(self) -> State:
        """Returns the states of the files, which differ after any change.

        A link that leads elsewhere is a change too: Kubernetes renews its secrets so.
        """
        return {what: _state(path) for what, path in self._paths.items()}


def _state(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def tls_at_start(settings: Settings) -> TlsFiles | None:
    """None: the port speaks no TLS.  Raises Misuse."""
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        given, missing = ("tls_certificate", "tls_key")[:: 1 if settings.tls_certificate else -1]
        raise Misuse(f"{option(given)} needs {option(missing)} beside it")
    if settings.certificate_principals and not settings.tls_client_ca:
        raise Misuse("--certificate-principals needs --tls-client-ca: without it no client shows a certificate")
    if not settings.tls_certificate:
        for name in ("tls_client_ca", "cleartext_port"):
            if getattr(settings, name):
                raise Misuse(f"{option(name)} needs --tls-certificate and --tls-key: without them there is no TLS")
        return None
    try:
        return TlsFiles(settings)
    except UnusableTls as error:
        raise Misuse(str(error)) from None


class Renewal:
    """Looks whether the files have changed, gives what is new to `renew`, and says when a certificate expires.

    A pair that will not do is refused with one line, and what there was stays.  Files are written one after the
    other: what will not do is looked at again before anything is said.
    """

    def __init__(self, files: TlsFiles, renew: Callable[[TlsMaterial], None]) -> None:
        self._files = files
        self._material = files.material
        self._renew = renew
        self._seen = files.state
        self._doubted: State | None = None  # would not do; it is not said yet
        self._reported: tuple[ValidityState, datetime] | None = None  # what was said of the expiry, and when

    async def run(self) -> None:
        """Checks the files for ever."""
        while True:
            self.report_expiry(datetime.now(UTC))
            await asyncio.sleep(CHECK_SECONDS)
            self.check()

    def check(self) -> None:
        """Read the files if they have changed since they were read, or would not do."""
        state = self._files.check()
        if state != self._seen:
            self._read(state, surely=state == self._doubted)

    def check_now(self) -> None:
        """Reads the files, changed or not, on an operator's request."""
        self._read(self._files.check(), surely=True)

    def _read(self, state: State, *, surely: bool) -> None:
        try:
            material = self._files.read()
        except UnusableTls as error:
            self._doubted = state
            if surely:
                self._seen = state
                logger.error("new files of TLS are not used, and the old ones stay in use: %s", error)
            return
        self._seen, self._doubted = state, None
        if material != self._material:
            self._material, self._reported = material, None
            self._renew(material)
            logger.info("new connections get the new certificate, valid until %s", self._expiry())

    def _expiry(self) -> str:
        return in_words(self._material.validity.ends) if self._material.validity else ""

    def report_expiry(self, now: datetime) -> None:
        """Say that the certificate should be renewed, or has expired: when that begins, and once a day."""
        validity = self._material.validity
        if validity is None:
            return
        state = validity.state(now)
        if state is ValidityState.VALID or (
            self._reported and self._reported[0] is state and now - self._reported[1] < REMIND_AFTER
        ):
            return
        self._reported = state, now
        ends = in_words(validity.ends)
        if state is ValidityState.EXPIRED:
            about = extra(fields_of(event="tls_certificate_expired"))
            logger.error("the TLS certificate has expired at %s: clients refuse it", ends, extra=about)
            return
        left, lifetime = span_in_words(validity.ends - now), span_in_words(validity.lifetime)
        logger.warning(
            "the TLS certificate expires at %s, in %s: less than a third of its %s is left",
            ends,
            left,
            lifetime,
            extra=extra(fields_of(event="tls_certificate_expires")),
        )
