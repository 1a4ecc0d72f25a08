"""What publishes on a topic without a caller; an extension."""

from broker.domain.topic_publisher import TopicPublisher


def publisher_json(publisher: TopicPublisher) -> dict[str, str]:
    """What is empty is left out."""
    fields = {
        "name": publisher.name,
        "kind": publisher.kind,
        "state": publisher.state.value,
        "serviceAgent": publisher.service_agent,
        "reason": publisher.reason,
        "createdBy": publisher.created_by,
    }
    return {name: text for name, text in fields.items() if text}
