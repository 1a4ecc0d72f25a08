"""Topics with figures: how fast they are published to, what they retain, and how their subscriptions are."""
