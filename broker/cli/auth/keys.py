"""`broker auth keys`: the keys of a running broker's service accounts."""

from base64 import b64decode
from pathlib import Path

import click

from broker.cli.auth.accounts import account_name
from broker.cli.auth.api import Api, Json
from broker.cli.auth.calling import Shown, calling, texts
from broker.cli.command_line import Group
from broker.cli.private_file import write_private_file
from broker.cli.stop import Misuse, Stop

COMMANDS = Group("keys", help="Keys of service accounts: how programs prove who they are.")
_FIELDS = ("id", "validAfterTime")


@calling(COMMANDS, "create")
@click.option("--output", "file", metavar="FILE", required=True, help="Where to write it; it must not exist.")
@click.argument("email")
def create(api: Api, *, file: str, email: str) -> Shown:
    """Make a key file for GOOGLE_APPLICATION_CREDENTIALS, which only its owner may read."""
    path = Path(file).absolute()
    if path.exists():
        raise Misuse(f"--output: {path} exists; name a file that does not, so that no key is lost")
    made = api.call("POST", f"{account_name(email)}/keys", {})
    try:
        write_private_file(path, b64decode(made.pop("privateKeyData")).decode())
    except OSError as error:
        api.call("DELETE", made["name"])  # nobody could ever get it
        raise Stop(f"{path} cannot be written: {error.strerror or error}") from error
    return Shown(made | {"file": str(path)}, line=f"The key {_id(made)} of {email} is in {path}.")


@calling(COMMANDS, "list")
@click.argument("email")
def list_(api: Api, *, email: str) -> Shown:
    """List the keys of an account."""
    found = api.all_of(f"{account_name(email)}/keys", "keys")
    return Shown(found, _FIELDS, texts([key | {"id": _id(key)} for key in found], *_FIELDS))


@calling(COMMANDS, "delete")
@click.argument("email")
@click.argument("key_id", metavar="ID")
def delete(api: Api, *, email: str, key_id: str) -> Shown:
    """Delete a key; what it has signed is worth nothing from then on."""
    return Shown(api.call("DELETE", f"{account_name(email)}/keys/{key_id}"), line=f"Deleted the key {key_id}.")


def _id(key: Json) -> str:
    return str(key["name"]).rpartition("/")[2]
