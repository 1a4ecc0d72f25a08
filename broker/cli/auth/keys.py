"""`broker auth keys`: the keys of a running broker's service accounts."""

from base64 import b64decode
from pathlib import Path

import click

from broker.cli.auth.calling import calling
from broker.cli.auth.names import account_address, of_account
from broker.cli.client.calling import Session
from broker.cli.client.confirming import YES, confirm
from broker.cli.client.output import Shown
from broker.cli.client.words import leaf, short_time
from broker.cli.command_line import Group
from broker.cli.private_file import write_private_file
from broker.cli.stop import Misuse, Stop
from broker.domain.errors import os_reason

COMMANDS = Group("keys", help="Keys of service accounts: how programs prove who they are.")
_account = click.argument("account")


@calling(COMMANDS, "create", "broker auth keys create billing --output billing.json")
@click.option("--output", "file", metavar="FILE", required=True, help="Where to write it; it must not exist.")
@_account
def create(session: Session, *, file: str, account: str) -> Shown:
    """Make a key file for GOOGLE_APPLICATION_CREDENTIALS, which only its owner may read."""
    path = Path(file).absolute()
    if path.exists():
        raise Misuse(f"--output: {path} exists; name a file that does not, so that no key is lost")
    made = of_account(session, account, lambda name: session.api.call("POST", f"{name}/keys", {}))
    try:
        write_private_file(path, b64decode(made.pop("privateKeyData")).decode())
    except OSError as error:
        session.api.call("DELETE", made["name"])  # nobody could ever get it
        raise Stop(f"{path} cannot be written: {os_reason(error)}") from error
    fields = {"key": leaf(made["name"]), "account": account_address(session, account), "file": file}
    return Shown(data=made | {"file": str(path)}, fields=fields)


@calling(COMMANDS, "list", "broker auth keys list $EMAIL")
@_account
def list_(session: Session, *, account: str) -> Shown:
    """List the keys of an account."""
    found = of_account(session, account, lambda name: session.api.all_of(f"{name}/keys", "keys"))
    rows = [[leaf(one["name"]), short_time(one["validAfterTime"])] for one in found]
    return Shown(data=found, columns=("id", "made"), rows=rows, nothing="It has no key.")


@calling(COMMANDS, "show", "broker auth keys show billing $KEY")
@_account
@click.argument("key_id", metavar="ID")
def show(session: Session, *, account: str, key_id: str) -> Shown:
    """Show a key, without what proves it."""
    found = of_account(session, account, lambda name: session.api.call("GET", f"{name}/keys/{key_id}"))
    return Shown(data=found, fields=found)


@calling(COMMANDS, "delete", "broker auth keys delete $EMAIL $KEY")
@_account
@click.argument("key_id", metavar="ID")
@YES
def delete(session: Session, *, account: str, key_id: str, yes: bool) -> Shown:
    """Delete a key; tokens that it has signed are refused from then on."""
    confirm(f"Delete the key {key_id} of {account_address(session, account)}, for good?", yes=yes)
    answer = of_account(session, account, lambda name: session.api.call("DELETE", f"{name}/keys/{key_id}"))
    return Shown(data=answer, line=f"Deleted the key {key_id}.")
