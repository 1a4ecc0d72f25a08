"""Labels of topics, subscriptions and snapshots."""

import re
from collections.abc import Mapping

from broker.domain.errors import InvalidArgument

MAX_LABELS = 64  # Google's quota
# Lower-case letters of any script, digits, _ and -; a key starts with a letter and is not empty.
_KEY = re.compile(r"(?![\d_-])[\w-]{1,63}")
_VALUE = re.compile(r"[\w-]{0,63}")


def check_labels(labels: Mapping[str, str]) -> None:
    """Raises InvalidArgument that names the label."""
    if len(labels) > MAX_LABELS:
        raise InvalidArgument(f"labels has {len(labels)} entries, the maximum is {MAX_LABELS}.")
    for key, value in labels.items():
        if not _KEY.fullmatch(key) or key != key.lower():
            raise InvalidArgument(
                f"labels has an invalid key ({key[:80]!r}): 1 to 63 lower-case letters, digits, _ and -, "
                "beginning with a letter."
            )
        if not _VALUE.fullmatch(value) or value != value.lower():
            raise InvalidArgument(
                f"labels[{key!r}] has an invalid value ({value[:80]!r}): at most 63 lower-case letters, digits, "
                "_ and -."
            )
