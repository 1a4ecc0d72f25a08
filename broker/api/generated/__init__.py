"""Protocol definitions of Google's API and the message classes made from them."""
