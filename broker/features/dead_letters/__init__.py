"""Dead letters: lists of what subscriptions have given up, and which of it can be acted on."""
