"""How pushes of a subscription go, and what failed: status, failures, a test push."""
