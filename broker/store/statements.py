"""The hot statements: one file of sql/ each, loaded by name at import.

`load("claim_fresh")` is the text of sql/claim_fresh.sql without its comments, so that what PostgreSQL logs
and prepares is the statement alone.
"""

from importlib.resources import files


def load(name: str) -> bytes:
    """The text of sql/<name>.sql.  Raises FileNotFoundError for an unknown name."""
    text = files("broker.store").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    lines = (line.split("--", 1)[0].rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line).encode()
