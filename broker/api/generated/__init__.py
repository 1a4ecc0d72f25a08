"""Protocol definitions of Google's API, and the message classes generated from them."""
