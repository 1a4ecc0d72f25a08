"""Push configs as google.pubsub.v1.PushConfig."""

from typing import Any

from broker.domain.push_config import OidcToken, PushConfig
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
        wrapper=message.WhichOneof("wrapper") or "",
        write_metadata=message.no_wrapper.write_metadata,
    )


def push_config_message(config: PushConfig) -> Any:
    message = messages.PushConfig(push_endpoint=config.endpoint, attributes=config.attributes)
    if config.oidc_token is not None:
        message.oidc_token.service_account_email = config.oidc_token.service_account_email
        message.oidc_token.audience = config.oidc_token.audience
    if config.wrapper:
        getattr(message, config.wrapper).SetInParent()
    if config.write_metadata:
        message.no_wrapper.write_metadata = True
    return message
