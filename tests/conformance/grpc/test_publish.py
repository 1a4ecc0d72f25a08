"""tests/conformance/test_publish.py over gRPC."""

from tests.conformance.test_publish import *  # noqa: F403
