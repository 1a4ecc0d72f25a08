"""Reads the settings in force from the options of a command and from the environment."""

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.app.settings.fields import FIELDS, NAMES, PREFIX, Settings, as_text, option, variable
from broker.app.settings.kinds import CLIENT_VARIABLES
from broker.features.inspect.fleet.shown_setting import ShownSetting

_NEAR = 0.75  # of difflib's ratio: PROT is close to PORT, and URL to nothing


def default_data_dir() -> str:
    """Returns where an installed broker keeps its data: the XDG data directory ("": the user has no home)."""
    try:
        base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    except RuntimeError:
        return ""
    return str(Path(base) / "pubsub-broker")


class SettingError(ValueError):
    """A setting that cannot be; the message is one line for the operator."""


@dataclass(frozen=True, slots=True)
class SettingsInForce:
    """The settings, where each comes from ("default", "BROKER_PORT", "--port"), and warnings about ignored ones."""

    settings: Settings
    origins: Mapping[str, str]
    ignored: Sequence[str]

    @property
    def all_shown(self) -> Sequence[ShownSetting]:
        """All settings that were asked for, as operators may see them."""
        return [ShownSetting(name, self.shown(name), origin) for name, origin in self.origins.items()]

    def shown(self, name: str) -> str:
        """The value as it may be shown to people: without a password."""
        text: str = FIELDS[name].metadata["show"](as_text(getattr(self.settings, name)))
        return text


def find_settings(
    options: Mapping[str, str | None], *, names: Iterable[str] = NAMES, environment: Mapping[str, str] | None = None
) -> SettingsInForce:
    """The settings `names` as they were given, checked; the others have their defaults.  Raises SettingError.

    `options`: those of the command line, by the setting's name.  White space at the ends of a value is dropped, and
    an empty variable counts as one that is not set.
    """
    environment = os.environ if environment is None else environment
    ignored = [
        f"{given} is no setting and is ignored (`broker serve --help` lists all)"
        for given in _unknown_variables(environment)
    ]
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in names:
        origin, text = _given(name, options, environment)
        origins[name] = origin or "default"
        if origin:
            values[name] = _read(name, origin, text)
    if values.get("database_url") and "disk_free_min" in values:
        ignored.append(
            f"{origins['disk_free_min']} is ignored: it is for the disk of the embedded database, and "
            f"{origins['database_url']} names another database; database_size_max limits what that one stores"
        )
    if "data_dir" not in values:
        values["data_dir"] = default_data_dir()
    if "push_private_addresses" not in values:
        values["push_private_addresses"] = "deny" if values.get("auth") == "required" else "allow"
    return SettingsInForce(Settings(**values), origins, ignored)


def asks_for_traces(environment: Mapping[str, str] | None = None) -> bool:
    """Whether OpenTelemetry's own variables do (https://opentelemetry.io/docs/specs/otel/configuration/
    sdk-environment-variables/): they name an exporter or its endpoint, and do not switch it off.  Raises
    SettingError for a protocol that the broker does not send by.
    """
    environment = os.environ if environment is None else environment
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter not in ("", "otlp"):
        return False
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    asks = bool(exporter) or any(environment.get(name) for name in endpoints)
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL") if asks else ():
        if (protocol := environment.get(name)) and protocol != "http/protobuf":
            what = "leave it out, and name the collector's port for HTTP, which is 4318 by custom"
            raise SettingError(f"{name} must be http/protobuf, not {protocol[:40]!r}: {what}")
        if protocol:  # the variable for traces takes precedence
            break
    return asks


def _given(name: str, options: Mapping[str, str | None], environment: Mapping[str, str]) -> tuple[str, str]:
    """Returns the option or variable that has the setting ("": none), and its text."""
    if (text := options.get(name)) is not None:
        return option(name), text.strip()
    variables = [variable(name)] + (["DATABASE_URL"] if name == "database_url" else [])
    for given in variables:
        text = environment.get(given, "").strip()
        if text and not _is_service_link(given, text):
            return given, text
    return "", ""


def _read(name: str, origin: str, text: str) -> Any:
    metadata = FIELDS[name].metadata
    try:
        return metadata["kind"].read(text)
    except ValueError as error:
        more = f": {error}" if str(error) else ""
        shown = metadata["show"](text)
        raise SettingError(f"{origin} must be {metadata['kind'].allowed}, not {shown!r}{more}") from None


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Returns the variables that begin as the broker's do and are none of them.

    Raises SettingError for one that is almost the broker's.  BROKER_NAME and the like belong to other programs.
    But a near miss is meant for the broker: to ignore it could be to use another database, or to let pushes go
    where they may not.
    """
    unknown = []
    for given, text in environment.items():
        if not given.startswith(PREFIX) or _is_service_link(given, text):
            continue
        name = given.removeprefix(PREFIX).lower()
        if name in NAMES or given in CLIENT_VARIABLES:
            continue
        if near := difflib.get_close_matches(name, NAMES, 1, _NEAR):
            raise SettingError(
                f"{given} is no setting; did you mean {variable(near[0])}? (`broker serve --help` lists all)"
            )
        unknown.append(given)
    return sorted(unknown)


# Variables that Kubernetes (enableServiceLinks) and `docker run --link` set for a service called "broker":
# BROKER_PORT=tcp://10.0.0.1:8085, BROKER_SERVICE_HOST, BROKER_PORT_8085_TCP_ADDR, …
_SERVICE_LINK = re.compile(
    r"BROKER_(.+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


def _is_service_link(given: str, text: str) -> bool:
    is_url = given.endswith("_PORT") and _SERVICE_URL.match(text) is not None
    return is_url or _SERVICE_LINK.fullmatch(given) is not None
