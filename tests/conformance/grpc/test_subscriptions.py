"""tests/conformance/test_subscriptions.py over gRPC."""

from tests.conformance.test_subscriptions import *  # noqa: F403
