"""Registers the list of projects."""

from broker.access.policies.authorizer import Authorizer
from broker.core.context.core import Core
from broker.features.feature import Feature
from broker.features.projects.rpcs import make_rpcs
from broker.features.projects.service import ProjectService


def register(core: Core, *, authorizer: Authorizer | None) -> Feature:
    """Registers the feature.  `authorizer` is None if every caller may see everything."""
    return Feature(rpcs=make_rpcs(ProjectService(core.database, authorizer)))
