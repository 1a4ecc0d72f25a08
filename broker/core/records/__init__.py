"""The journal and the record of deliveries: what happened to messages, and when."""
