"""REST handler that lists what publishes to a topic on the broker's own initiative, an extension."""

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, encode_list
from broker.features.inspect.publisher_service import TopicPublisherService
from broker.features.inspect.topic_publisher import TopicPublisher
from broker.model.page import parse_page


async def list_publishers(service: TopicPublisherService, call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query))
    found, token = await service.list_publishers(call.name, page)
    return encode_list("publishers", [publisher_json(publisher) for publisher in found], token)


# --- JSON ---------------------------------------------------------------------------------------------------


def publisher_json(publisher: TopicPublisher) -> dict[str, str]:
    """Returns the JSON of a publisher.  Empty fields are left out."""
    fields = {
        "name": publisher.name,
        "kind": publisher.kind,
        "state": publisher.state.value,
        "serviceAgent": publisher.service_agent,
        "reason": publisher.reason,
        "createdBy": publisher.created_by,
    }
    return {name: text for name, text in fields.items() if text}
