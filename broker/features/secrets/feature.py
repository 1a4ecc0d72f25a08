"""Registers the worker that keeps the secrets in the database encrypted with the current key."""

from broker.access.secrets.secrets import Secrets
from broker.core.context.core import Core
from broker.core.process.periodic import PeriodicWorker
from broker.features.feature import Feature
from broker.features.secrets.worker import KEEPING_SECONDS, SecretKeeper


def register(core: Core, secrets: Secrets) -> Feature:
    keeper = SecretKeeper(core.database, secrets, core.states)
    return Feature(workers={"secrets": PeriodicWorker(keeper.run_once, KEEPING_SECONDS)}, begin=keeper.run_once)
