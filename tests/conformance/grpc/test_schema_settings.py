"""tests/conformance/test_schema_settings.py over gRPC."""

from tests.conformance.test_schema_settings import *  # noqa: F403
