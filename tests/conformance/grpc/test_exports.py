"""tests/conformance/test_exports.py over gRPC."""

from tests.conformance.test_exports import *  # noqa: F403
