"""tests/conformance/test_topics.py over gRPC."""

from tests.conformance.test_topics import *  # noqa: F403
