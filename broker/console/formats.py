"""Numbers as pages show them.  Ages, sizes, times and names are those of the command line (client/words.py)."""


def number(value: float | str) -> str:
    """Return a count with separators of thousands."""
    return f"{int(value):,}"


def rate(value: float | None) -> str:
    """Return a number a second with at most three digits after the point; "" for None."""
    return "" if value is None else f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
