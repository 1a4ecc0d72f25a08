"""Values and pure rules that every part of the broker shares: topics, subscriptions, messages, names, errors."""
