"""Previews of messages in lists: the beginning of the data of each, and what it costs to read them."""

WHOLE = 2**31 - 1  # bytes: more than any message has
READ_SHARE = 10  # a byte that is read and not shown costs a tenth of one that is shown


def preview_cost(data_size: int, preview_bytes: int) -> int:
    """Returns what the data of a message counts towards the size of a page of a list that shows `preview_bytes` of
    it.

    PostgreSQL reads the whole body of a message to return its beginning, unless nothing is to be shown.  The SQL
    statements of lists count in the same way, so that a page is bounded in what it reads as well as in what it
    shows.
    """
    shown = min(data_size, preview_bytes)
    return shown + (0 if preview_bytes == 0 else (data_size - shown) // READ_SHARE)
