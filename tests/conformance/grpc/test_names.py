"""tests/conformance/test_names.py over gRPC."""

from tests.conformance.test_names import *  # noqa: F403
