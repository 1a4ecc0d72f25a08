"""Which endpoints a push subscription may have, and which secrets."""

import base64

import pytest
from yarl import URL

from broker.model.errors import InvalidArgument
from broker.model.push_config import PULL, PushOptions
from broker.model.push_limits import check_endpoint, check_push

GOOD = [
    "http://localhost",
    "http://localhost:8080/push?token=1#part",
    "https://example.com/push",
    "HTTPS://EXAMPLE.COM/",
    "http://127.0.0.1:9",
    "http://[::1]:8080/push",
    "http://[fe80::1]/",
    "http://my_service:80/",
    "http://example.com./",
    "https://bücher.example/übung",
    "https://xn--bcher-kva.example/",
    "http://host/path with@at".replace(" ", "%20"),
    "http://host/?q={}&[]",
    "http://h/" + "x" * 2_039,
    "http://" + "a" * 63 + ".example",
]
BAD = [
    "",
    "example.com",
    "//example.com/push",
    "/push",
    "ftp://example.com",
    "javascript:alert(1)",
    "file:///etc/passwd",
    "http:",
    "http:example.com",
    "http://",
    "https:///push",
    "http://:80/",
    "http://?q",
    "http://host:net/",
    "http://host:-1/",
    "http://host:0/",
    "http://host:65536/",
    "http://host:8o/",
    "http://ho st/",
    "http://host/a b",
    " http://host/",
    "http://host/\n",
    "http://host/\r\nX-Injected: 1",
    "http://host\0/",
    "http://host/\x7f",
    "http://host/\u2028",
    "http://host/\ud800",
    "http://host/\u200b",
    "http://host\\@other/",
    "http:\\\\host/",
    "http://user@host/",
    "http://user:password@host/",
    "http://@host/",
    "http://a..b/",
    "http://.host/",
    "http://" + "a" * 64 + "/",
    "http://" + ".".join(["a" * 60] * 5) + "/",
    "http://[::1/",
    "http://[]/",
    "http://[v1.a]/",
    "http://[host]/",
    "http://[::1]x/",
    "http://ho%73t/",
    "http://ho,st/",
    "http://ho;st/",
    "http://ho*st/",
    "http://ho\u2100st/",
    "http://h/" + "x" * 2_040,
]


@pytest.mark.parametrize("endpoint", GOOD)
def test_an_endpoint_that_is_accepted_is_one_for_the_http_client_too(endpoint: str) -> None:
    check_endpoint(endpoint)
    url = URL(endpoint)
    assert url.host
    assert url.scheme in ("http", "https")
    assert url.user is None


@pytest.mark.parametrize("endpoint", BAD)
def test_an_endpoint_that_is_none_is_refused_in_the_service_s_words(endpoint: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_endpoint(endpoint)
    assert refused.value.message.startswith("Invalid push endpoint given (endpoint=")
    assert (
        "Refer to https://cloud.google.com/pubsub/subscriber#create for more information." in refused.value.message
    )


def test_a_password_is_not_repeated() -> None:
    for endpoint in ("http://user:hunter2@host/", "http://user:hunter2@ho st/", "x://:hunter2@host:99999/"):
        with pytest.raises(InvalidArgument) as refused:
            check_endpoint(endpoint)
        assert "hunter2" not in refused.value.message


def _secret(size: int) -> str:
    return "whsec_" + base64.b64encode(bytes(range(size))).decode()


@pytest.mark.parametrize("size", [24, 25, 26, 64])
def test_a_secret_is_24_to_64_bytes(size: int) -> None:
    check_push(PULL, PushOptions(webhook_secrets=(_secret(size),)), exactly_once=False, ordered=False)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        _secret(23),
        _secret(65),
        _secret(24).removeprefix("whsec_"),
        _secret(24).upper(),
        _secret(25).rstrip("="),
        _secret(24) + "\n",
        " " + _secret(24),
        _secret(24)[:-1] + "-",
        _secret(24)[:-1] + "é",
        "whsec_" + _secret(24),
    ],
)
def test_another_secret_is_refused_and_not_repeated(secret: str) -> None:
    options = PushOptions(webhook_secrets=(_secret(24), secret))
    with pytest.raises(InvalidArgument) as refused:
        check_push(PULL, options, exactly_once=False, ordered=False)
    assert "webhookSecrets[1]" in refused.value.message
    assert len(secret) < 10 or secret not in refused.value.message
