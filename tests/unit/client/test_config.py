"""Addresses as users write them."""

import pytest

from ottla.client.config import parse_addresses, split_address


def test_addresses_are_taken_apart_and_put_together() -> None:
    found = parse_addresses(" localhost:9092, PLAINTEXT://[::1]:1 ,10.0.0.1:65535,")
    assert found == ("localhost:9092", "[::1]:1", "10.0.0.1:65535")
    assert [split_address(one) for one in found] == [("localhost", 9092), ("::1", 1), ("10.0.0.1", 65535)]


@pytest.mark.parametrize(
    "text", ["", ",", "localhost", "localhost:", "localhost:0", "localhost:65536", "a b:1", "::1:9092x"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_addresses(text)
