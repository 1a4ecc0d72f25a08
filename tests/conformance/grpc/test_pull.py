"""tests/conformance/test_pull.py over gRPC."""

from tests.conformance.test_pull import *  # noqa: F403
