"""The condition by which a statement selects the rows on a page of a list of resources."""

from sqlalchemy import ARRAY, Column, ColumnElement, Text, and_, any_, literal

from broker.model.page import Page


def is_listed(name: Column[str], project: str, collection: str, page: Page) -> ColumnElement[bool]:
    """Returns the condition for the resources of a project's collection from a page on; `name`: their column."""
    within = f"{project}/{collection}"
    listed = and_(name > max(page.after, f"{within}/"), name < f"{within}0")  # "0" comes after the slash
    if page.only is None:
        return listed
    return and_(listed, name == any_(literal(sorted(page.only), ARRAY(Text))))
