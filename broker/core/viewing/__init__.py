"""What callers see of messages in the calls that show them, by their permissions and by masking rules.

Calls that deliver messages (pull, StreamingPull, push) are not limited by it.
"""
