"""Files of keys, and what is encrypted with them."""

import base64
import os
from pathlib import Path

import pytest

from broker.access.secrets.cells import signing_key_cell, token_key_cell
from broker.access.secrets.keys import format_keys, make_key, read_keys
from broker.access.secrets.secrets import CannotOpen, Secrets, is_sealed, key_id_of

CELL = signing_key_cell("k1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.key"
    path.write_text(format_keys([make_key()]))
    return path


def sealing(file: Path) -> Secrets:
    secrets = Secrets(str(file))
    secrets.is_sealing = True
    return secrets


def test_what_is_encrypted_opens_in_its_place_alone(file: Path) -> None:
    secrets = sealing(file)
    sealed = secrets.seal(b"secret", CELL)
    assert is_sealed(sealed)
    assert b"secret" not in sealed
    assert sealed != secrets.seal(b"secret", CELL), "each has random bytes of its own"
    assert secrets.open(sealed, CELL) == b"secret"
    for elsewhere in (signing_key_cell("k2"), token_key_cell("k1")):
        with pytest.raises(CannotOpen, match="was changed, or belongs elsewhere"):
            secrets.open(sealed, elsewhere)


@pytest.mark.parametrize(
    "change", [lambda s: s[:-4] + b"AAAA", lambda s: s[:20], lambda s: s + b"!", lambda s: s[:5]]
)
def test_what_was_changed_does_not_open(file: Path, change: object) -> None:
    assert callable(change)
    secrets = sealing(file)
    with pytest.raises(CannotOpen):
        secrets.open(change(secrets.seal(b"secret", CELL)), CELL)


def test_clear_text_from_before_opens_and_nothing_is_encrypted_without_a_key(file: Path) -> None:
    assert Secrets(str(file)).open(b"whsec_x", CELL) == b"whsec_x"
    assert Secrets().seal(b"whsec_x", CELL) == b"whsec_x"


def test_a_key_that_is_not_there_is_named_with_the_setting(file: Path) -> None:
    sealed = sealing(file).seal(b"secret", CELL)
    other = file.with_name("other.key")
    other.write_text(format_keys([make_key()]))
    with pytest.raises(
        CannotOpen, match=f"{key_id_of(sealed)}, which .*other.key does not have .--secrets-key-file"
    ):
        Secrets(str(other)).open(sealed, CELL)
    with pytest.raises(CannotOpen, match=f"{key_id_of(sealed)}, and no key is given .--secrets-key-file"):
        Secrets().open(sealed, CELL)


def test_a_new_first_line_encrypts_and_the_lines_below_still_decrypt(file: Path) -> None:
    reader, writer = sealing(file), sealing(file)
    old = writer.seal(b"old", CELL)
    file.write_text(f"# since today\n{format_keys([make_key()])}{file.read_text()}")
    assert writer.reload() == ""
    new = writer.seal(b"new", CELL)
    assert key_id_of(new) != key_id_of(old)
    assert reader.open(new, CELL) == b"new", "who meets a key that is new reads the file"
    assert reader.open(old, CELL) == b"old"


def test_a_file_that_is_gone_leaves_the_keys_as_they_were(file: Path) -> None:
    secrets = sealing(file)
    sealed = secrets.seal(b"secret", CELL)
    file.unlink()
    assert "No such file" in secrets.reload()
    assert secrets.open(sealed, CELL) == b"secret"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "it has no key"),
        ("# only this\n\n", "it has no key"),
        ("c2VjcmV0\n", "line 1 is not the base64 of 32 bytes"),
        ("\nnot base64 but secret!\n", "line 2 is not the base64 of 32 bytes"),
        (os.urandom(64).hex() + "\xff", "it is not a file of keys"),
    ],
)
def test_a_file_without_keys_is_refused_and_not_quoted(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "keys"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=why) as raised:
        read_keys(path)
    assert "c2VjcmV0" not in str(raised.value)
    assert "but secret" not in str(raised.value)


def test_what_openssl_prints_is_a_key(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(base64.b64encode(os.urandom(32)) + b"\n")
    [key] = read_keys(path)
    assert len(key.key_id) == 8
    assert repr(key) == "SecretsKey()"
