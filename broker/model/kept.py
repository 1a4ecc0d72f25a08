"""The JSON names of fields that are stored and returned without effect.

api_spec/support.toml lists them.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from broker.model.errors import InvalidArgument
from broker.model.refusals import refuse_nul

MAX_KEPT_BYTES = 65_536  # of JSON, in all; some hundred times as much as any of them has a use for


def check_kept(kept: Mapping[str, Any]) -> None:
    """Raises InvalidArgument for values that are too long to keep, or have U+0000."""
    size = len(msgspec.json.encode(kept))
    if size > MAX_KEPT_BYTES:
        raise InvalidArgument(
            f"{', '.join(kept)} are too long: {size} bytes of JSON, the maximum is {MAX_KEPT_BYTES} in all."
        )
    refuse_nul(kept)


def update_kept(
    kept: Mapping[str, Any], wanted: Mapping[str, Any], fields: Collection[str], json_names: Mapping[str, str]
) -> dict[str, Any]:
    """The kept fields after an update of some `fields`: those as wanted, the others as they were.

    `json_names`: of all that are kept, by their names in a mask.
    """
    masked = {json_name for field, json_name in json_names.items() if field in fields}
    return {name: value for name, value in kept.items() if name not in masked} | {
        name: value for name, value in wanted.items() if name in masked
    }
