"""Reads names and pages from requests, as Google's messages."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from broker.model.names import check_shape
from broker.model.page import Page, parse_page


def resource_name(name: str, collection: str) -> str:
    """The name, if a resource of the collection ("topics", …) can have it.  Raises InvalidArgument."""
    check_shape(name, collection)
    return name


def project_name(name: str) -> str:
    """The name, if a project can have it.  Raises InvalidArgument."""
    check_shape(name)
    return name


def page_of(request: Any, only: Collection[str] | None = None) -> Page:
    """Returns the page of a list request; `only`: of resources with these names.  Raises InvalidArgument."""
    return replace(parse_page(request.page_size, request.page_token), only=only)
