"""tests/conformance/test_push_config.py over gRPC."""

from tests.conformance.test_push_config import *  # noqa: F403
