"""tests/conformance/test_push_lifecycle.py over gRPC."""

from tests.conformance.test_push_lifecycle import *  # noqa: F403
