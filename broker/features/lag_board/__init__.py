"""The lag board: the lag of each subscription when it was last sampled, as ordered and filtered pages."""
