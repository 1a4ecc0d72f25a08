"""Renders pages: templates, formats, and the headers that every answer of the console has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from broker.client import words
from broker.console import formats
from broker.console.assets import Assets
from broker.console.bodies import attribute_line, escaped, preview
from broker.console.charts import RANGES
from broker.console.prefix import PREFIX

_TEMPLATES = Path(__file__).parent / "templates"
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types console",
    ]
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer browsers send forms with `Origin: null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def size(count: float | str) -> str:
    """Return a number of bytes, which the API may write as a string, with its unit."""
    return words.size(float(count))


class Renderer:
    """The templates of the console, compiled when they are first used."""

    def __init__(self, assets: Assets, *, version: str) -> None:
        """`version`: the broker's, which pages show."""
        environment = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.filters |= {
            "attribute_line": attribute_line,
            "age": words.age_of,
            "escaped": escaped,
            "in_words": words.in_words,
            "latency": formats.latency,
            "leaf": words.leaf,
            "moment": words.short_time,
            "moments": formats.moments,
            "number": formats.number,
            "preview": preview,
            "rate": formats.rate,
            "size": size,
        }
        environment.globals |= {
            "asset": assets.url,
            "chart_ranges": tuple(RANGES),
            "prefix": PREFIX,
            "version": version,
        }
        self._environment = environment

    def render(self, template: str, data: Mapping[str, Any], *, status: int = 200) -> HTMLResponse:
        """Return an answer with the headers of the console."""
        text = self._environment.get_template(template).render(data)
        return HTMLResponse(text, status, headers=HEADERS)
