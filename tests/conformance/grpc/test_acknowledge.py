"""tests/conformance/test_acknowledge.py over gRPC."""

from tests.conformance.test_acknowledge import *  # noqa: F403
