"""Decodes messages by the schema of their topic; an extension."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from broker.core.catalog import topic_rows as topics
from broker.core.log.logged_message import read_message
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import Database
from broker.features.schemas.checking.mismatch import Mismatch
from broker.features.schemas.schema import Schema, is_revision_id, revision_not_found, within
from broker.features.schemas.schema_checks import SchemaChecks
from broker.model.errors import FailedPrecondition, InvalidArgument, NotFound
from broker.model.message_id import parse_message_id
from broker.model.names import project_of
from broker.model.schema_settings import ENCODINGS, SchemaSettings

_NAME, _REVISION, _ENCODING = (
    "googclient_schemaname",
    "googclient_schemarevisionid",
    "googclient_schemaencoding",
)
_attributes = msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, slots=True)
class DecodedMessage:
    """`json`: the data of the message in JSON, by this revision."""

    json: bytes
    revision: Schema
    encoding: str
    data_size: int


class DecodeService:
    """Reading only: nothing is changed, locked or delivered."""

    def __init__(self, database: Database, checks: SchemaChecks) -> None:
        self._database = database
        self._checks = checks

    async def decode(self, topic_name: str, message_id: str, revision_id: str, *, explain: bool) -> DecodedMessage:
        """Decodes a message by a revision of its topic's schema ("": the one that it was published by, else the
        newest that the topic takes).

        `explain`: whether the error for a message that does not conform says why, which may quote its values.
        Raises InvalidArgument (the ids), NotFound (topic, message, revision), FailedPrecondition (the topic has no
        schema; the message does not conform to it), Unavailable.
        """
        shard_id, id_seq = parse_message_id(message_id)
        if revision_id and not is_revision_id(revision_id):
            raise InvalidArgument(f"revision must be eight hexadecimal digits (revision={revision_id[:100]}).")
        async with self._database.transaction() as connection:
            topic = await topics.find_topic(connection, name=topic_name)
        if topic is None:
            raise topic_not_found(topic_name)
        settings = topic.schema_settings
        if settings is None:
            raise FailedPrecondition(f"The topic has no schema to decode its messages by (resource={topic_name}).")
        message = None
        if shard_id in topic.shard_ids:
            async with self._database.hot() as hot:
                message = await read_message(hot, shard_id=shard_id, id_seq=id_seq)
        if message is None:
            raise NotFound(
                f"There is no message {message_id} of {topic_name}, or it is not retained any more "
                f"(messageId={message_id})."
            )
        given = _attributes.decode(message.attributes)
        revision = _chosen(settings, await self._checks.revisions(settings), given, revision_id)
        encoding = settings.encoding
        if given.get(_NAME) == settings.schema and given.get(_ENCODING) in ENCODINGS:
            encoding = given[_ENCODING]
        try:
            decoded = await self._checks.decode(project_of(topic_name), revision, message.data, encoding)
        except Mismatch as mismatch:
            why = f" ({mismatch})" if explain else ""
            raise FailedPrecondition(
                f"The message is not {revision.revision_name} in {encoding}{why} (messageId={message_id})."
            ) from mismatch
        return DecodedMessage(decoded, revision, encoding, message.data_size)


def _chosen(
    settings: SchemaSettings, revisions: Sequence[Schema], given: dict[str, str], revision_id: str
) -> Schema:
    """Raises NotFound."""
    if not revision_id and given.get(_NAME) == settings.schema:
        revision_id = given.get(_REVISION, "")
        if all(each.revision_id != revision_id for each in revisions):
            revision_id = ""  # it was deleted
    if not revision_id:
        return within(settings, revisions)[0]
    for each in revisions:
        if each.revision_id == revision_id:
            return each
    raise revision_not_found(settings.schema, revision_id)
