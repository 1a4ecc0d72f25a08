"""Records what topics and subscriptions count, and how far subscriptions are behind, for two weeks."""
