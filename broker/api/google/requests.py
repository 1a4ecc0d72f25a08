"""Reads names and pages from requests, as Google's messages."""

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


def page_of(request: Any) -> Page:
    """The page of a list request.  Raises InvalidArgument."""
    return parse_page(request.page_size, request.page_token)
