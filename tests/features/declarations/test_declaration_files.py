"""Files of declarations: what YAML 1.1 and 1.2 read differently is a mistake with its line (decision 0072)."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.stop import Misuse
from broker.client.yaml_documents import read_documents
from broker.features.declarations.export_command import to_yaml
from broker.features.declarations.reading import read_declarations
from tests.cli.client.terminal import Terminal

_LABELS = "topics:\n  t:\n    labels: "


def _read(directory: Path, text: str) -> dict[str, dict[str, Any]]:
    file = directory / "shop.yaml"
    file.write_text(text)
    return read_declarations([str(file)], "projects/p").resources


@pytest.mark.parametrize(
    "name", ["no", "on", "Yes", "true", "123", "0x1F", "1.5", ".inf", "~", "null", "010", "1_0", "1:30"]
)
def test_a_name_that_yaml_reads_as_no_string_is_a_mistake_that_says_to_quote_it(tmp_path: Path, name: str) -> None:
    for text, line in ((f"topics:\n  {name}: {{}}\n", 2), (f"{_LABELS}{{{name}: x}}\n", 3), (f"{name}: {{}}\n", 1)):
        with pytest.raises(Misuse, match=rf"shop\.yaml line {line}: the name .* so quote it: \"") as mistake:
            _read(tmp_path, text)
        assert mistake.value.args[0].endswith(f'so quote it: "{name}"')
    assert _read(tmp_path, f'topics: {{"{name}": {{labels: {{"{name}": "{name}"}}}}}}\n')["topics"] == {
        f"projects/p/topics/{name}": {"labels": {name: name}}
    }


@pytest.mark.parametrize("value", ["on", "1", "1.5", "true"])
def test_a_value_that_yaml_reads_as_no_string_is_a_mistake_that_says_to_quote_it(
    tmp_path: Path, value: str
) -> None:
    with pytest.raises(Misuse) as mistake:
        _read(tmp_path, f"{_LABELS}{{x: {value}}}")
    said = mistake.value.args[0]
    assert "shop.yaml line 3: topics.t.labels.x: " in said
    assert said.endswith(f'so quote it: "{value}"')


@pytest.mark.parametrize("value", ["010", "0o10", "0x1F", "0b1", "1_000", "1:30", "1:30.5", ".nan", "-.inf"])
def test_a_number_that_not_all_read_alike_is_a_mistake(tmp_path: Path, value: str) -> None:
    text = f"topics: {{t: {{}}}}\nsubscriptions:\n  s: {{topic: t, ackDeadlineSeconds: {value}}}"
    with pytest.raises(Misuse, match=r"shop\.yaml line 3: "):
        _read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("topics:\n  t: {}\n  t: {}", 3, "'t' is given twice"),
        ("topics:\n  [a]: {}", 2, "a name is a string, not a list or a mapping"),
        ("topics:\n  ? {a: b}\n  : {}", 2, "a name is a string, not a list or a mapping"),
        ("topics:\n  !!binary aGk=: {}", 2, "a name has the tag"),
        ("topics: !!set {a, b}", 1, "it has the tag tag:yaml.org,2002:set"),
        ("topics: !!python/object:os.system {}", 1, "it has the tag"),
        ("topics: &all\n  t: *all", 2, "*all is within what it names: it contains itself"),
        ("topics: {t: {}", 1, "it is not YAML"),
        ("topics:\n  t: {shards: 2}", 2, "topics.t: Additional properties are not allowed"),
        ("- a", 1, 'is not of type "object"'),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(Misuse) as mistake:
        _read(tmp_path, text)
    assert f"shop.yaml line {line}: " in mistake.value.args[0]
    assert said in mistake.value.args[0]


def test_a_date_is_a_string_and_mappings_may_be_merged(tmp_path: Path) -> None:
    first = "topics:\n  2026-11-26: &one\n    labels: {day: 2026-11-26, v: 1e3}\n"
    text = f"{first}  u:\n    <<: *one\n    kmsKeyName: k\n"
    labels = {"day": "2026-11-26", "v": "1e3"}
    assert _read(tmp_path, text)["topics"] == {
        "projects/p/topics/2026-11-26": {"labels": labels},
        "projects/p/topics/u": {"labels": labels, "kmsKeyName": "k"},
    }


@given(st.text("ab:-{}[]&*!<>?|#~ \n\t\"'%@,.0123_xnoe\x00\x85\ud7ff", max_size=30))
def test_any_text_is_read_or_is_a_mistake(text: str) -> None:
    try:
        documents = read_documents(text, "f")
    except Misuse as mistake:
        assert str(mistake).startswith("f")  # noqa: PT017
    else:
        assert all(isinstance(document.value, str | int | float | list | dict | None) for document in documents)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON)
def test_what_export_writes_is_read_as_it_was(value: object) -> None:
    """It quotes what needs it, so no name or string that it writes is refused."""
    [document] = read_documents(to_yaml({"value": value}), "f")
    assert document.value == {"value": value}


def test_apply_ends_with_2_and_one_line(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("topics:\n  no: {}\n")
    done = terminal.pipe(f"broker apply --project p --file {file} --dry-run")
    assert (done.code, done.text.count("\n")) == (2, 1)
    assert f'{file} line 2: the name no is read as a boolean by YAML, so quote it: "no"' in done.text
