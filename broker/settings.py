"""Every knob of the broker, and the only reader of the environment.

docs/settings.md lists them; a test holds the two equal.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any


def _knob(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


def default_data_dir() -> str:
    """Where an installed broker keeps its data: the XDG data directory."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return str(Path(base) / "pubsub-broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A knob `x` is set by the option `--x` where there is one, else by BROKER_X in the environment."""

    host: str = _knob("127.0.0.1", "Address to listen on.")
    port: int = _knob(8085, "Port to listen on.")
    data_dir: str = _knob("", "Directory of the embedded PostgreSQL; default: the XDG data directory.")
    database_url: str = _knob(
        "", "PostgreSQL 15+ of your own (postgresql://…); also DATABASE_URL. Empty: the embedded one."
    )
    workers: int = _knob(1, "Number of broker processes that share the port.")
    pull_wait_seconds: float = _knob(20.0, "How long a pull waits for its first message.")
    pool_size: int = _knob(8, "Database connections of each process for hot statements.")
    request_memory_mb: int = _knob(
        256, "Bytes (MB) of requests that a process holds at most, and as many again of answers to slow readers."
    )
    max_waiting_pulls: int = _knob(20_000, "Pulls that wait at most in each process.")
    janitor_interval_seconds: float = _knob(30.0, "How often partitions are made ahead and space is given back.")
    shards_per_topic: int = _knob(1, "Shards of a new topic; more spread one hot topic over more writers.")
    min_delivery_attempts: int = _knob(
        5, "Smallest maxDeliveryAttempts of a dead-letter policy: 1 to 5; Google's service has 5."
    )
    issuer: str = _knob(
        "", "Issuer (iss) of the tokens that pushes carry: the URL at which receivers reach the broker."
    )
    push_private_addresses: str = _knob(
        "allow", "allow or deny: whether pushes may go to private, loopback and link-local addresses."
    )
    push_allowed_networks: str = _knob(
        "", "Networks (CIDR, commas between) that pushes may go to although private addresses are denied."
    )
    push_ca_file: str = _knob(
        "", "Certificate authorities (PEM) that endpoints are trusted by, besides the system's."
    )
    log_level: str = _knob("info", "debug, info, warning or error.")


def load(overrides: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from the environment, overridden by the options that were given.  Raises ValueError."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for knob in fields(Settings):
        name = f"BROKER_{knob.name.upper()}"
        text = environment.get(name) or (environment.get("DATABASE_URL") if knob.name == "database_url" else None)
        if overrides.get(knob.name) is not None:
            values[knob.name] = overrides[knob.name]
        elif text:
            kind: type[str] | type[int] | type[float] = type(knob.default)  # type: ignore[assignment]
            try:
                values[knob.name] = kind(text)
            except ValueError:
                raise ValueError(f"{name}={text!r} is not a {kind.__name__}") from None
    values["data_dir"] = values.get("data_dir") or default_data_dir()
    return Settings(**values)
