"""Security of sources and sinks: from options, a file of the driver and the environment, and on to the tasks."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from ottla.spark import connection_pool
from ottla.spark.options import batch_options, stream_options
from ottla.spark.sink_options import sink_options

CANARY = "cAnArY-1b7e"
HERE = {"kafka.bootstrap.servers": "h:1"}
LOGIN = {
    "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config":
        f'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="{CANARY} ";',
}  # fmt: skip
PEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def _no_settings_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_CLIENT_CONFIG", raising=False)


def test_tasks_have_what_the_driver_read(tmp_path: Path) -> None:
    """A secret is in no repr on the way, and the files of the driver need not be where tasks run."""
    ca = tmp_path / "ca.pem"
    ca.write_text(PEM)
    given = {**HERE, **LOGIN, "kafka.ssl.ca.location": str(ca)}
    source = batch_options({**given, "subscribe": "t"})
    sink = sink_options({**given, "topic": "t"}, is_stream=True)
    assert CANARY not in repr(source) + repr(sink) + repr(connection_pool.client_config(source.client))
    ca.unlink()
    there, written = pickle.loads(pickle.dumps((source, sink)))
    for security in (connection_pool.client_config(there.client).security, written.client.security):
        assert security.login.password.reveal() == f"{CANARY} "
        assert security.tls.trusted.read() == PEM.encode()
    assert connection_pool.client_config(there.client) == connection_pool.client_config(source.client), (
        "workers keep connections by it"
    )


def test_a_file_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password={CANARY}\n"
    )
    of_option = stream_options({**HERE, "subscribe": "t", "client.config": str(file)}).client.security
    assert of_option.login is not None and of_option.login.username == "u"
    monkeypatch.setenv("OTTLA_CLIENT_CONFIG", str(file))
    of_environment = sink_options({**HERE, "topic": "t"}, is_stream=False).client.security
    assert of_environment == of_option
    plain = sink_options({**HERE, "topic": "t", "kafka.security.protocol": "PLAINTEXT"}, is_stream=False)
    assert plain.client.security.login is None, "an option wins"
    other = {"kafka.sasl.username": "other", "kafka.sasl.password": "p"}
    found = stream_options({**HERE, **other, "subscribe": "t", "client.config": str(file)}).client.security
    assert found.login is not None and found.login.username == "other"
