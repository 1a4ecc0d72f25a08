"""tests/conformance/test_update_masks.py over gRPC."""

from tests.conformance.test_update_masks import *  # noqa: F403
