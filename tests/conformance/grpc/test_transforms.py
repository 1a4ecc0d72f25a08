"""tests/conformance/test_transforms.py over gRPC."""

from tests.conformance.test_transforms import *  # noqa: F403
