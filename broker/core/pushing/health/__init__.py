"""Whether an endpoint may get another request now: window, backoff, rate limit, circuit breaker."""
