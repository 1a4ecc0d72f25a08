"""The log of a topic: appends and reads batches of messages; makes and finds partitions."""
