"""`broker auth keys`: the keys of a running broker's service accounts."""

from base64 import b64decode
from pathlib import Path

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.output import Shown
from broker.client.private_file import write_private_file
from broker.client.stop import Misuse, Stop
from broker.client.words import leaf
from broker.features.iam.commands.names import account_address, account_name, guessing_account
from broker.model.errors import os_reason

ACCOUNT = click.argument("account")
ARGUMENTS = (ACCOUNT, click.argument("key_id", metavar="ID"))


def key_name(session: Session, account: str, key_id: str) -> str:
    """Returns the full name of a key.  Raises Misuse."""
    return f"{account_name(session, account)}/keys/{key_id}"


def find(session: Session, *, account: str) -> list[Json]:
    """Returns the keys of an account."""
    with guessing_account(session, account):
        return session.api.all_of(f"{account_name(session, account)}/keys", "keys")


@calling("create", "broker auth keys create billing --output billing.json")
@click.option("--output", "file", metavar="FILE", required=True, help="Where to write it; it must not exist.")
@ACCOUNT
def create(session: Session, *, file: str, account: str) -> Shown:
    """Make a key file for GOOGLE_APPLICATION_CREDENTIALS, which only its owner may read."""
    path = Path(file).absolute()
    if path.exists():
        raise Misuse(f"--output: {path} exists; name a file that does not, so that no key is lost")
    with guessing_account(session, account):
        made = session.api.call("POST", f"{account_name(session, account)}/keys", {})
    try:
        write_private_file(path, b64decode(made.pop("privateKeyData")).decode())
    except OSError as error:
        session.api.call("DELETE", made["name"])  # nobody could ever get it
        raise Stop(f"{path} cannot be written: {os_reason(error)}") from error
    fields = {"key": leaf(made["name"]), "account": account_address(session, account), "file": file}
    return Shown(data=made | {"file": str(path)}, fields=fields)
