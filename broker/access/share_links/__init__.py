"""Links to the pushes of one subscription, for people without a credential."""
