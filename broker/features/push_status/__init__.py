"""The push status of a subscription: recent results, failures, a test push."""
