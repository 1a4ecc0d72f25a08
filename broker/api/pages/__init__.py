"""HTTP pages beside the API: health, metrics, the specification, tokens, discovery."""
