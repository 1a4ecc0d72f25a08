"""The filter language: parses filters, compiles them to jsonpath, evaluates them."""
