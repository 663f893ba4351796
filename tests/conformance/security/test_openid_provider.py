"""OAUTHBEARER with an OpenID provider of others (npm's oidc-provider, which is certified): tokens and keys as it makes
them, for librdkafka and for Ottla's own client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from peers.kafka import free_port
from tests.conformance.clients import build
from tests.node import NodeProcess

PREFIX = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer."
CLIENT, SECRET = "orders", "the secret of orders"


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    why = build.missing("node")
    if why is not None:
        pytest.skip(why)
    port = free_port()
    program = ["node", str(build.build("node") / "openid-provider.js"), str(port)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as provider:
        try:
            assert provider.stdout is not None
            assert any(line == "ready\n" for line in provider.stdout), "the provider does not start"
            yield f"http://127.0.0.1:{port}"
        finally:
            provider.kill()


@pytest.mark.matrix
@pytest.mark.parametrize("audience", ["kafka", "another"])
def test_tokens_of_a_certified_provider(tmp_path: Path, topic: str, issuer: str, audience: str) -> None:
    node = NodeProcess(tmp_path / "data")
    node.settings |= {
        "listeners": f"SASL_PLAINTEXT://{node.bootstrap}",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}jwks.endpoint.url": f"{issuer}/jwks",
        f"{PREFIX}expected.issuer": issuer,
        f"{PREFIX}expected.audience": audience,
    }
    settings = {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": f"{issuer}/token",
    }
    own = tmp_path / "client.properties"
    own.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with node:
        listed = subprocess.run(
            [sys.executable, "-m", "ottla.cli.main", "topic", "list", "--config", str(own)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if audience != "kafka":
            assert listed.returncode == 1 and SECRET not in listed.stderr, listed
            with pytest.raises(KafkaException):
                AdminClient(settings).list_topics(timeout=3)
            return
        assert listed.returncode == 0, listed
        producer = Producer(settings)
        producer.produce(topic, b"x")
        assert producer.flush(60) == 0
