"""Dead letters: lists of what subscriptions have dead-lettered, and which of it can be acted on."""
