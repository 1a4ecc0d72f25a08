"""The core and each feature have a README, whose facts agree with the code of the package."""

import re
from pathlib import Path

from broker.db.schema.tables import VIEWS, metadata
from tests.fixtures.broker import repository

_BROKER = repository() / "broker"
FEATURES = sorted(path.parent for path in (_BROKER / "features").glob("*/__init__.py"))
PACKAGES = [_BROKER / "core", *FEATURES]
MAX_LINES = 40
SECTIONS = ["Tables", "Seams", "Cost", "Documentation"]
SECTIONS_OF_THE_CORE = ["Tables", "Seams", "Documentation"]
TABLES = {*metadata.tables, *VIEWS}
COLUMNS = {column.name for table in metadata.tables.values() for column in table.columns}
# Tables of access/ and db/ that no feature has calls about.
OF_OTHER_LAYERS = {
    *("access_changes", "access_version", "locked_names", "notification_keys"),
    *(f"lock_{name}" for name in ("cleanup", "declaring", "dropping", "events", "measuring", "partitions")),
}

_WRITTEN = re.compile(r"\b(?:INSERT INTO|UPDATE(?: ONLY)?|DELETE FROM) ([a-z_]+)")
_NAME = re.compile(r"`([a-z]+(?:_[a-z]+)+|[a-z]+)`")
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
_REGISTERED = re.compile(r"(?:.*_)?(?:rest|calls|worker|command)")  # modules of calls, jobs and commands


def _label(package: Path) -> str:
    return package.relative_to(_BROKER).as_posix()


def _readme(package: Path) -> str:
    path = package / "README.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _section(package: Path, heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", _readme(package), re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def _named_tables(package: Path) -> set[str]:
    return set(_NAME.findall(_section(package, "Tables")))


def _written_tables(package: Path) -> set[str]:
    """The tables that its statements change, without the names of a statement's own parts."""
    sql = "\n".join(path.read_text(encoding="utf-8") for path in package.rglob("*.sql"))
    return set(_WRITTEN.findall(re.sub(r"--.*", "", sql))) & set(metadata.tables)


def test_the_core_and_each_feature_have_a_short_readme_with_every_section() -> None:
    assert len(FEATURES) > 20
    long = [_label(package) for package in PACKAGES if not 0 < len(_readme(package).splitlines()) <= MAX_LINES]
    assert long == [], f"no README.md, or one of more than {MAX_LINES} lines"
    for package in PACKAGES:
        sections = re.findall(r"^## (.+)$", _readme(package), re.MULTILINE)
        assert sections == (SECTIONS if package in FEATURES else SECTIONS_OF_THE_CORE), _label(package)
        assert all(_section(package, each).strip() for each in sections), _label(package)


def test_a_readme_names_each_table_that_its_package_writes_and_none_that_does_not_exist() -> None:
    unknown = {_label(package): _named_tables(package) - TABLES - COLUMNS for package in PACKAGES}
    assert {name: words for name, words in unknown.items() if words} == {}
    missing = {_label(package): _written_tables(package) - _named_tables(package) for package in PACKAGES}
    assert {name: tables for name, tables in missing.items() if tables} == {}


def test_each_table_is_named_by_a_readme_except_those_of_other_layers() -> None:
    named = set().union(*(_named_tables(package) for package in PACKAGES))
    assert set(metadata.tables) - named == OF_OTHER_LAYERS


def test_the_documentation_of_a_readme_exists() -> None:
    for package in PACKAGES:
        pages = [(package / link).resolve() for link in _LINK.findall(_section(package, "Documentation"))]
        assert pages, _label(package)
        docs = repository() / "docs"
        assert [page for page in pages if not page.exists() or not page.is_relative_to(docs)] == [], _label(package)


def test_the_readme_of_a_feature_names_its_modules_of_calls_jobs_and_commands() -> None:
    for package in FEATURES:
        text = _readme(package)
        modules = [path for path in package.glob("*.py") if _REGISTERED.fullmatch(path.stem)]
        unnamed = [path.name for path in modules if path.name not in text and not _is_in_a_family(path.stem, text)]
        assert unnamed == [], _label(package)


def _is_in_a_family(stem: str, text: str) -> bool:
    """Whether the README names all modules with the same ending, by this ending."""
    return f"that end in `{stem.rpartition('_')[2]}`" in text
