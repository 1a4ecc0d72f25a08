"""Read-only views of topics and subscriptions: messages, consumers, lag, publishers, tails."""
