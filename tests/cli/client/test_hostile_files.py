"""Files and answers that are made to exhaust or break whoever reads them are refused quickly, in one line."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.client.files import MAX_TEXT_BYTES
from broker.client.json_text import NotJson, parse_json
from broker.client.stop import Misuse
from broker.client.yaml_documents import MAX_DEPTH, MAX_NODES, read_documents
from broker.features.declarations.reading import Declared, read_declarations
from tests.cli.client.answering import AnsweringServer
from tests.cli.client.terminal import Terminal

_GIGABYTE = 2**30


def _doubled(levels: int, value: str) -> str:
    """Aliases of aliases: the last one stands for 2 ** levels values."""
    return "".join(f"a{n}: &a{n} {value.format(n - 1, n - 1) if n else '{x: y}'}\n" for n in range(levels))


ALIASES = _doubled(40, "[*a{}, *a{}]")
MERGES = _doubled(40, "{{<<: [*a{}, *a{}]}}")
LINEAR = "".join(f"a{n}: &a{n} {'[' * 60}{f'*a{n - 1}' if n else ''}{']' * 60}\n" for n in range(40))
HOSTILE = {
    ALIASES: (r"line \d+", "250,000 values and names"),
    MERGES: (r"line \d+", "250,000 values and names"),
    LINEAR: ("line 2", "more than 100 levels deep"),
    "[" * 100_000: ("line 1", "more than 100 levels deep"),
    "{a: " * 5_000: ("line 1", "more than 100 levels deep"),
    "- " * 5_000: ("line 1", "more than 100 levels deep"),
    "".join(f"{' ' * n}a:\n" for n in range(500)): ("line 101", "more than 100 levels deep"),
    "topics: &a [*a]": ("line 1", "contains itself"),
    "topics: &a\n  t: *a": ("line 2", "contains itself"),
    "topics: &a {<<: *a}": ("line 1", "contains itself"),
    "topics: &a {}\n---\ntopics: &a\n  t: *a": ("line 4", "contains itself"),
    "topics:\n  t: !!binary aGk=": ("line 2", "tag:yaml.org,2002:binary"),
    "topics:\n  t: !!set {a}": ("line 2", "tag:yaml.org,2002:set"),
    "!!omap [a: 1]": ("line 1", "tag:yaml.org,2002:omap"),
    "!!python/object/apply:os.system [true]": ("line 1", "python/object/apply"),
    "a: !!bool x": ("line 1", "'x' is not a boolean, which its tag says it is"),
    "a: !!int ''": ("line 1", "'' is not a number, which its tag says it is"),
    "a: !!int []": ("line 1", "expected a scalar node"),
    'a:\n- "\\UFFFFFFFF"': ("line 2", "beyond the last one of Unicode"),
    'a:\n- "\\U00110000"': ("line 2", "beyond the last one of Unicode"),
    'a:\n- "\\ud800"': ("line 2", "half of a pair of surrogates"),
    f"a: {'9' * 5_000}": ("line 1", "more than 100 digits"),
    "a: 1.0e+9999": ("line 1", "out of range"),
    "a: b\nc: \x07": ("line 2", "the character 0x0007 is not allowed"),
    f"%YAML 1.{'9' * 5_000}\n--- a": ("line 1", "it is not YAML"),
}


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_hostile_file_is_refused_with_its_line_and_the_rule(number: int, tmp_path: Path) -> None:
    text, (line, rule) = list(HOSTILE.items())[number]
    file = tmp_path / "shop.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(Misuse, match=rf"^{re.escape(str(file))} {line}: ") as mistake:
        read_declarations([str(file)], "projects/p")
    assert rule in str(mistake.value)


def test_what_is_within_the_limits_is_read() -> None:
    deep = f"{'[' * MAX_DEPTH}x{']' * MAX_DEPTH}"
    [document] = read_documents(f"a: {deep[1:-1]}", "f")
    assert str(document.value["a"]).count("[") == MAX_DEPTH - 1
    wide = f"- &a [{'x, ' * 498}x]\n" + "- *a\n" * 498  # 500 nodes each, and one that is the list of them
    assert len(read_documents(f"{wide}- {['x'] * 498}", "f")[0].value) == MAX_NODES // 500
    with pytest.raises(Misuse, match="f line 500: it has more than 250,000"):
        read_documents(f"{wide}- *a", "f")
    pairs = json.dumps({"a": "\N{GRINNING FACE}"})
    assert read_documents(pairs, "f")[0].value == json.loads(pairs)


def test_bytes_that_are_not_utf_8_and_files_without_an_end_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_bytes(b"topics:\n  t: {}\n  \xff: {}\n")
    with pytest.raises(Misuse, match="line 3: the byte 0xff is not UTF-8"):
        read_declarations([str(file)], "projects/p")
    with pytest.raises(Misuse, match=f"/dev/zero has more than {MAX_TEXT_BYTES:,} bytes"):
        read_declarations(["/dev/zero"], "projects/p")


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_GIGABYTE, _GIGABYTE))


@pytest.mark.parametrize("text", [ALIASES, MERGES, "[" * 1_000_000])
def test_apply_refuses_a_bomb_within_a_gigabyte_of_addresses(text: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(text)
    words = ["apply", "--project", "p", "--file", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "broker", *words], capture_output=True, text=True, preexec_fn=_limit_memory
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith(f"broker: {file} line ")


_TOKENS = [
    *(
        "[",
        "]",
        "{",
        "}",
        ":",
        ": ",
        ",",
        "- ",
        "? ",
        "\n",
        "\n  ",
        " ",
        "\t",
        "---\n",
        "...\n",
        "#",
        "%YAML 1.1\n",
    ),
    *("&a ", "*a", "&b ", "*b", "<<: ", "<<: *a", "!!int ", "!!bool ", "!!str ", "!!map ", "!!set ", "!x ", "! "),
    *(
        "|",
        ">",
        "|2-\n",
        "'",
        '"',
        '"\\u',
        '"\\ud83d\\ude00"',
        '"\\UFFFFFFFF"',
        "=",
        "~",
        "null",
        "yes",
        "010",
        "1e999",
    ),
    *(
        "topics",
        "subscriptions",
        "schemas",
        "schedules",
        "policy",
        "labels",
        "t",
        "x" * 200,
        "\ufeff",
        "\x85",
        "\u2028",
    ),
]
_TEXTS = st.lists(st.sampled_from(_TOKENS), max_size=40).map("".join)


@given(_TEXTS.map(str.encode) | st.binary(max_size=300))
@example(b"topics: {t: }\n---\ntopics: {t: }")
@example(b"policy:\n---\npolicy:")
def test_any_bytes_are_read_or_refused_with_a_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(content)
    try:
        assert isinstance(read_declarations([str(file)], "projects/p"), Declared)
    except Misuse as mistake:
        assert re.match(rf"{re.escape(str(file))} line \d+: ", str(mistake))  # noqa: PT017


@given(
    st.binary(max_size=200) | st.text('[]{}",:0123456789.eE-+\\udDnulltruefalseNaN \n', max_size=60).map(str.encode)
)
@example(b"NaN")
@example(b"-Infinity")
@example(b"1e999")
@example(b"9" * 5_000)
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b'"\\ud800"')
def test_any_bytes_are_json_that_can_be_sent_or_are_refused(content: bytes) -> None:
    try:
        value = parse_json(content, sendable=True)
    except NotJson as error:
        assert str(error)  # noqa: PT017
    else:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def test_brackets_within_strings_are_not_levels() -> None:
    text = json.dumps({"a": '["{' * 1_000})
    assert parse_json(text) == json.loads(text)
    quotes = "[]" * 100 + '"' + '\\"' * 1_000_000  # a string without an end, in which no quote begins another one
    with pytest.raises(NotJson, match="Extra data"):
        parse_json(quotes)
    assert parse_json(b"\xef\xbb\xbf[]") == []
    with pytest.raises(NotJson, match=r"more than 100 levels deep \(line 2, column 101\)"):
        parse_json(f"\n{'[' * 5_000}")


DEEP = "[" * 100_000


@pytest.mark.parametrize("command", ["publish t --input json --file", "transform validate", "apply --file"])
@pytest.mark.parametrize(
    "text", [DEEP, f'{{"text": {DEEP}', f'{{"a": {"9" * 5_000}}}', '{"attributes": {"a": "\\ud800"}}']
)
def test_a_command_refuses_a_hostile_file_in_one_line(
    command: str, text: str, terminal: Terminal, server: AnsweringServer, tmp_path: Path
) -> None:
    file = tmp_path / "given.json"
    file.write_text(text)
    done = terminal.pipe(f"broker {command} {file} --project p --url {server.url}")
    assert (done.code, done.text.count("\n")) == (2, 1), done.text
    assert str(file) in done.text
    assert server.got == []


def test_hostile_credentials_contexts_and_values_are_refused_in_one_line(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key.json"
    key.write_text(f'{{"client_email": {DEEP}')
    contexts = tmp_path / "config" / "pubsub-broker" / "contexts.json"
    contexts.parent.mkdir(parents=True)
    contexts.write_text(DEEP)
    for line in (f"topic list --project p --credentials {key}", "context list"):
        done = terminal.pipe(f"broker {line}")
        assert (done.code, done.text.count("\n")) == (2, 1), done.text
    contexts.unlink()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    done = terminal.pipe("broker topic list --project p")
    assert "Traceback" not in done.text


@pytest.mark.parametrize("answer", [DEEP, "NaN", f'{{"topics": {DEEP}'])
def test_a_hostile_answer_is_no_answer_of_this_api(
    answer: str, terminal: Terminal, server: AnsweringServer
) -> None:
    server.answer = (200, answer.encode())
    done = terminal.pipe(f"broker topic list --project p --url {server.url}")
    assert (done.code, done.text.count("\n")) == (1, 1), done.text
    assert "does not answer as a server of this API does" in done.text
