"""`broker auth keys`: the keys of a running broker's service accounts."""

from base64 import b64decode
from pathlib import Path

import click

from broker.cli.auth.accounts import account_name
from broker.cli.auth.calling import calling
from broker.cli.client.calling import Session
from broker.cli.client.confirming import YES, confirm
from broker.cli.client.output import Shown
from broker.cli.client.words import leaf, short_time
from broker.cli.command_line import Group
from broker.cli.private_file import write_private_file
from broker.cli.stop import Misuse, Stop

COMMANDS = Group("keys", help="Keys of service accounts: how programs prove who they are.")


@calling(COMMANDS, "create", "broker auth keys create $EMAIL --output billing.json")
@click.option("--output", "file", metavar="FILE", required=True, help="Where to write it; it must not exist.")
@click.argument("email")
def create(session: Session, *, file: str, email: str) -> Shown:
    """Make a key file for GOOGLE_APPLICATION_CREDENTIALS, which only its owner may read."""
    path = Path(file).absolute()
    if path.exists():
        raise Misuse(f"--output: {path} exists; name a file that does not, so that no key is lost")
    made = session.api.call("POST", f"{account_name(email)}/keys", {})
    try:
        write_private_file(path, b64decode(made.pop("privateKeyData")).decode())
    except OSError as error:
        session.api.call("DELETE", made["name"])  # nobody could ever get it
        raise Stop(f"{path} cannot be written: {error.strerror or error}") from error
    fields = {"key": leaf(made["name"]), "account": email, "file": file}
    return Shown(data=made | {"file": str(path)}, fields=fields)


@calling(COMMANDS, "list", "broker auth keys list $EMAIL")
@click.argument("email")
def list_(session: Session, *, email: str) -> Shown:
    """List the keys of an account."""
    found = session.api.all_of(f"{account_name(email)}/keys", "keys")
    rows = [[leaf(one["name"]), short_time(one["validAfterTime"])] for one in found]
    return Shown(data=found, columns=("id", "made"), rows=rows, nothing="It has no key.")


@calling(COMMANDS, "delete", "broker auth keys delete $EMAIL $KEY")
@click.argument("email")
@click.argument("key_id", metavar="ID")
@YES
def delete(session: Session, *, email: str, key_id: str, yes: bool) -> Shown:
    """Delete a key; what it has signed is worth nothing from then on."""
    confirm(f"Delete the key {key_id} of {email}, for good?", yes=yes)
    answer = session.api.call("DELETE", f"{account_name(email)}/keys/{key_id}")
    return Shown(data=answer, line=f"Deleted the key {key_id}.")
