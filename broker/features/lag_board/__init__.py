"""The lag board: how far behind each subscription was when it was sampled last, as ordered and filtered pages."""
