"""tests/conformance/test_schemas.py over gRPC."""

from tests.conformance.test_schemas import *  # noqa: F403
