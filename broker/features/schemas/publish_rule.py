"""The publish rule of schemas."""

from broker.core.publishing.publish_rule import Draft, PublishRule
from broker.core.publishing.publishing_rules import Rule, without_schema_attributes
from broker.features.schemas.schema_checks import SchemaChecks
from broker.model.names import project_of
from broker.model.publish_property import PublishProperty


def schema_rule(checks: SchemaChecks) -> PublishRule:
    """Check messages against the schema, and store with them which revision they conform to."""

    async def check(draft: Draft, _: Rule) -> None:
        settings, packing = draft.topic.schema_settings, draft.packing
        assert settings is not None
        if not packing.stored:
            return
        if draft.rules.reserved_attributes is Rule.IGNORED:  # they may be of the schema of an earlier topic
            kept = iter(without_schema_attributes(packing.stored))
            packing.replace([None if each is None else next(kept) for each in packing.messages])
        project = project_of(draft.topic.name)
        packing.shared = await checks.check(project, settings, packing.stored, seconds=draft.seconds)

    return PublishRule(PublishProperty.SCHEMA, check)
