"""docs/settings.md lists every setting as it is."""

import re
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import certifi
import pytest

from broker.access.secrets.keys import format_keys, make_key
from broker.app.settings.fields import NAMES, Settings, default, kind, meaning, option, variable
from broker.app.settings.find import SettingError, default_data_dir, find_settings
from broker.cli.main import COMMANDS
from broker.cli.server_commands import Command
from tests.fixtures.broker import repository
from tests.fixtures.tls import localhost

_CELL = re.compile(r"`([^`]*)`")


def _documented() -> dict[str, dict[str, str]]:
    """The table's rows by the setting's name; a cell without code is empty."""
    text = (repository() / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {
        _code(name): {
            "option": _code(option),
            "variable": _code(variable),
            "default": _code(default),
            "allowed": allowed.strip(),
            "meaning": meaning.strip(),
        }
        for name, option, variable, default, allowed, meaning in rows
    }


def _code(cell: str) -> str:
    found = _CELL.search(cell)
    return found[1] if found else ""


def test_every_setting_is_documented_and_every_documented_one_exists() -> None:
    assert list(_documented()) == [setting.name for setting in fields(Settings)]


def test_settings_are_documented_with_option_variable_default_meaning_and_what_they_may_be() -> None:
    documented = _documented()
    for name in NAMES:
        assert documented[name] == {
            "option": option(name),
            "variable": variable(name),
            "default": default(name),
            "allowed": kind(name).allowed,
            "meaning": meaning(name),
        }, name


def test_serve_takes_every_setting_and_the_others_no_more() -> None:
    commands = {name: command for name, command in COMMANDS.items() if isinstance(command, Command)}
    assert commands["serve"].settings == NAMES
    assert all(set(command.settings) <= set(NAMES) for command in commands.values())


_ISSUERS = str(repository() / "examples" / "oidc-issuers.toml")

# A value for each that is not its default, and one that cannot be ("": any text will do).
_DIRECTORY = Path(tempfile.mkdtemp())
_KEY = localhost().write(_DIRECTORY, "localhost")[1]
_PASSWORD = _DIRECTORY / "password"
_PASSWORD.write_text("secret\n")
_KEYS = _DIRECTORY / "secrets.key"
_KEYS.write_text(format_keys([make_key()]))
_VALUES: dict[str, tuple[Any, str]] = {
    "host": ("0.0.0.0", "http://localhost:80"),
    "port": (0, "65536"),
    "tls_certificate": (certifi.where(), "/no/such.pem"),
    "tls_key": (_KEY, "/no/such.pem"),
    "tls_client_ca": (certifi.where(), "/no/such.pem"),
    "tls_client_certificates": ("optional", "perhaps"),
    "cleartext_port": (8086, "65536"),
    "cleartext_host": ("0.0.0.0", "http://localhost:80"),
    "metrics_port": (9085, "65536"),
    "metrics_host": ("0.0.0.0", "http://localhost:80"),
    "data_dir": ("/var/lib/broker", ""),
    "disk_free_min": ("2GiB", "a little"),
    "database_url": ("postgresql://u@h/x", "mysql://***"),
    "database_password_file": (str(_PASSWORD), "/no/such.txt"),
    "replica_database_url": ("postgresql://u@h/x", "mysql://***"),
    "replica_max_lag_seconds": (2.5, "0"),
    "hot_database_url": ("postgresql://u@a,b:5432/x", "mysql://***"),
    "database_size_max": ("500MB", "all"),
    "database_schema": ("pubsub", "pg_pubsub"),
    "apply": (certifi.where(), "/no/such.yaml"),
    "project": ("shop", "x/y"),
    "workers": (2, "0"),
    "keep_alive_seconds": (90.0, "9"),
    "pull_wait_seconds": (0.5, "-1"),
    "pool_size": (1, "0"),
    "request_memory_mb": (1, "0"),
    "max_waiting_pulls": (1, "0"),
    "max_scheduled_messages": (5, "0"),
    "janitor_interval_seconds": (1.5, "nan"),
    "lag_interval_seconds": (2.5, "0.5"),
    "shards_per_topic": (4, "0"),
    "min_delivery_attempts": (1, "6"),
    "operations_at_once": (20, "0"),
    "operation_days": (30, "0"),
    "delivery_record_hours": (48, "-1"),
    "console": ("off", "perhaps"),
    "console_read_only": (True, "perhaps"),
    "allow_reset": (True, "perhaps"),
    "issuer": ("https://broker.example.com", "broker.example.com"),
    "quotas": ("publishMessages=1000,topics=100", "messages=1"),
    "principal_quotas": ("publishBytes=1000", "topics=1"),
    "auth": ("required", "yes"),
    "auth_audiences": ("https://a.example/, https://b.example", "a.example"),
    "oidc_issuers": (_ISSUERS, "/no/such.toml"),
    "certificate_principals": (str(repository() / "examples" / "certificate-principals.toml"), "/no/such.toml"),
    "secrets_key_file": (str(_KEYS), "/no/such.key"),
    "insecure_transport": (True, "perhaps"),
    "audit": ("all", "some"),
    "audit_file": ("/tmp/audit.jsonl", "/no/such/directory/audit.jsonl"),
    "audit_days": (30, "0"),
    "audit_entries": (1000, "99"),
    "allowed_hosts": ("broker.example.com, *.example.org", "https://a.example"),
    "cors_origins": ("https://a.example, http://localhost:3000", "a.example"),
    "push_private_addresses": ("deny", "never"),
    "push_allowed_networks": ("10.0.0.0/8, fd00::/8", "10.0.0.0/99"),
    "push_ca_file": (certifi.where(), "/no/such.pem"),
    "push_failing_after": (90.0, "-1"),
    "log_level": ("debug", "loud"),
    "log_format": ("json", "yaml"),
    "access_log": ("on", "/no/such/directory/access.log"),
    "slow_request_seconds": (0.5, "-1"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_setting_is_read_from_its_variable_and_an_option_goes_first(name: str) -> None:
    value, _ = _VALUES[name]
    assert value != getattr(Settings(), name)
    environment = {variable(name): str(value)}
    found = find_settings({}, environment=environment)
    assert (getattr(found.settings, name), found.origins[name]) == (value, variable(name))
    for wrong in ("x y", "-7"):  # it is not even looked at
        found = find_settings({name: str(value)}, environment={variable(name): wrong})
        assert (getattr(found.settings, name), found.origins[name]) == (value, option(name))


def test_private_addresses_are_denied_to_pushes_once_callers_must_show_who_they_are() -> None:
    for given, expected in (
        ({}, "allow"),
        ({"auth": "off"}, "allow"),
        ({"auth": "required"}, "deny"),
        ({"auth": "required", "push_private_addresses": "allow"}, "allow"),
        ({"push_private_addresses": "deny"}, "deny"),
    ):
        assert find_settings(given, environment={}).settings.push_private_addresses == expected, given


@pytest.mark.parametrize("name", [name for name in NAMES if _VALUES[name][1]])
def test_a_value_that_cannot_be_is_refused_by_the_name_it_was_given_by(name: str) -> None:
    wrong = _VALUES[name][1]
    expected = f" must be {kind(name).allowed}, not '{wrong}'"
    with pytest.raises(SettingError) as refused:
        find_settings({}, environment={variable(name): wrong})
    assert str(refused.value).startswith(variable(name) + expected)
    with pytest.raises(SettingError) as refused:
        find_settings({name: wrong}, environment={})
    assert str(refused.value).startswith(option(name) + expected)


@pytest.mark.parametrize("number", ["many", "", " ", "1.5", "0x10", "nan", "inf", "-inf", "1e999"])
@pytest.mark.parametrize("name", ["workers", "port"])
def test_what_is_no_whole_number_is_refused(name: str, number: str) -> None:
    with pytest.raises(SettingError, match="must be a whole number from"):
        find_settings({name: number}, environment={})


@pytest.mark.parametrize("seconds", ["soon", "", "nan", "inf", "-inf", "1e999", "3601", "-0.1"])
def test_what_is_no_time_is_refused(seconds: str) -> None:
    with pytest.raises(SettingError, match="must be a number of seconds from 0 to 3600"):
        find_settings({"pull_wait_seconds": seconds}, environment={})


def test_the_least_and_the_most_are_allowed() -> None:
    for name in NAMES:
        values: Any = kind(name)
        for value in (getattr(values, "least", None), getattr(values, "most", None)):
            if value is not None:
                assert getattr(find_settings({name: str(value)}, environment={}).settings, name) == value


@pytest.mark.parametrize("host", ["127.0.0.1:8085", "http://localhost", "a b", "[::1]", "user@host"])
def test_a_host_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(SettingError, match="--host must be an address or a name of this machine, without a port"):
        find_settings({"host": host}, environment={})


@pytest.mark.parametrize("host", ["localhost", "::1", "::", "fe80::1%eth0", "broker.example.com"])
def test_a_host_may_be_a_name_or_an_address_of_either_kind(host: str) -> None:
    assert find_settings({"host": host}, environment={}).settings.host == host


def test_database_url_is_understood_without_a_prefix() -> None:
    found = find_settings({}, environment={"DATABASE_URL": "postgresql:///b"})
    assert (found.settings.database_url, found.origins["database_url"]) == ("postgresql:///b", "DATABASE_URL")
    with pytest.raises(SettingError, match=r"^DATABASE_URL must be a URL such as postgresql://"):
        find_settings({}, environment={"DATABASE_URL": "mysql://h/x"})


def test_an_empty_option_undoes_a_database_url_of_the_environment() -> None:
    assert find_settings(
        {"database_url": ""}, environment={"DATABASE_URL": "postgresql:///b"}
    ).settings == Settings(data_dir=default_data_dir(), push_private_addresses="allow")


def test_a_command_looks_at_no_setting_that_it_does_not_take() -> None:
    environment = {"BROKER_PUSH_CA_FILE": "/not/mounted/here.pem", "BROKER_DATABASE_URL": "postgresql:///b"}
    found = find_settings({}, names=["database_url"], environment=environment)
    assert found.settings.database_url == "postgresql:///b"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("BROKER_POOL_SIZ", "BROKER_POOL_SIZE"),
        ("BROKER_DATABASE_ULR", "BROKER_DATABASE_URL"),
        ("BROKER_DATADIR", "BROKER_DATA_DIR"),
        ("BROKER_PROT", "BROKER_PORT"),
        ("BROKER_PUSH_PRIVATE_ADRESSES", "BROKER_PUSH_PRIVATE_ADDRESSES"),
        ("BROKER_LOGLEVEL", "BROKER_LOG_LEVEL"),
    ],
)
def test_a_variable_that_is_nearly_a_setting_is_refused_with_what_is_meant(given: str, meant: str) -> None:
    for names in (NAMES, ["database_url"]):
        with pytest.raises(SettingError, match=rf"^{given} is no setting; did you mean {meant}\?"):
            find_settings({}, names=names, environment={given: "1"})


def test_a_limit_of_the_embedded_database_s_disk_is_ignored_of_another_database_with_a_warning() -> None:
    given = {"BROKER_DISK_FREE_MIN": "1GB"}
    assert find_settings({}, environment=given).ignored == []
    [warning] = find_settings({"database_url": "postgresql://h/db"}, environment=given).ignored
    assert warning.startswith("BROKER_DISK_FREE_MIN is ignored: ")
    assert "--database-url names another database; database_size_max limits" in warning


def test_a_variable_of_somebody_else_is_named_and_ignored() -> None:
    environment = {
        "BROKER_URL": "http://",
        "BROKER_ADDRESS": "z",
        "BROKER_NAME": "x",
        "BROKERAGE": "y",
        "MY_BROKER_POOL_SIZ": "1",
    }
    assert find_settings({}, environment=environment).ignored == [
        f"{name} is no setting and is ignored (`broker serve --help` lists all)"
        for name in ("BROKER_ADDRESS", "BROKER_NAME")
    ]


# https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
_SERVICE_LINKS = {
    "BROKER_SERVICE_HOST": "10.0.0.1",
    "BROKER_SERVICE_PORT": "8085",
    "BROKER_SERVICE_PORT_GRPC": "8085",
    "BROKER_PORT": "tcp://10.0.0.1:8085",
    "BROKER_PORT_8085_TCP": "tcp://10.0.0.1:8085",
    "BROKER_PORT_8085_TCP_PROTO": "tcp",
    "BROKER_PORT_8085_TCP_PORT": "8085",
    "BROKER_PORT_8085_TCP_ADDR": "10.0.0.1",
    "BROKER_DATABASE_SERVICE_HOST": "10.0.0.2",
    "BROKER_DATABASE_PORT": "tcp://10.0.0.2:5432",
    "BROKER_DATABASE_PORT_5432_TCP": "tcp://10.0.0.2:5432",
}


def test_the_service_links_of_kubernetes_are_no_settings_of_a_broker_that_runs_there() -> None:
    found = find_settings({}, environment=_SERVICE_LINKS)
    assert (found.settings.port, found.settings.host, found.ignored) == (8085, "127.0.0.1", [])
    assert set(found.origins.values()) == {"default"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cret@h:5432/x",
        "postgresql://u:s3cret/s3cret@h/x",
        "postgresql://u:s3cret@s3cret@h/x?sslmode=require",
        "postgresql://u@h/x?password=s3cret&sslmode=require",
        "postgresql://u@h/x?sslpassword=s3cret",
        "host=h user=u password=s3cret dbname=x",
        "host=h password = 's3cret s3cret' dbname=x",
        "mysql://u:s3cret@h/x",
        "postgresql//u:s3cret@h/x",
        "postgresql:u:s3cret@h/x",
        "host=h password='s3cret",
    ],
)
def test_no_password_is_ever_shown(url: str) -> None:
    try:
        shown = find_settings({"database_url": url}, environment={}).shown("database_url")
    except SettingError as error:
        shown = str(error)
    assert "s3cret" not in shown
