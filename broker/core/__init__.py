"""The broker without its extensions: topics, subscriptions, publishing, delivery."""
