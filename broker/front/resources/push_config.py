"""Push configs as google.pubsub.v1.PushConfig."""

from typing import Any

from broker.domain.push_config import NoWrapper, OidcToken, PubsubWrapper, PushConfig
from broker.front.generated import messages


def push_config_from(message: Any) -> PushConfig:
    """The push config in a message; without an endpoint it is a pull subscription's."""
    token = message.oidc_token
    return PushConfig(
        endpoint=message.push_endpoint,
        attributes=dict(message.attributes),
        oidc_token=OidcToken(service_account_email=token.service_account_email, audience=token.audience)
        if message.HasField("oidc_token")
        else None,
        pubsub_wrapper=PubsubWrapper() if message.HasField("pubsub_wrapper") else None,
        no_wrapper=NoWrapper(write_metadata=message.no_wrapper.write_metadata)
        if message.HasField("no_wrapper")
        else None,
    )


def push_config_message(config: PushConfig) -> Any:
    message = messages.PushConfig(push_endpoint=config.endpoint, attributes=config.attributes)
    if config.oidc_token is not None:
        message.oidc_token.service_account_email = config.oidc_token.service_account_email
        message.oidc_token.audience = config.oidc_token.audience
    if config.pubsub_wrapper is not None:
        message.pubsub_wrapper.SetInParent()
    if config.no_wrapper is not None:
        message.no_wrapper.SetInParent()
        message.no_wrapper.write_metadata = config.no_wrapper.write_metadata
    return message
