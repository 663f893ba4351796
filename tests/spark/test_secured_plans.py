"""Secrets in options of a source and a sink are in no plan: what `explain` and the pages of Spark's UI show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not set up: no pyspark here")

CANARY = "cAnArY-6d0f"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{CANARY}";'
LOGIN = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.security.protocol": "SASL_PLAINTEXT"}
WAYS = [
    {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": JAAS},
    {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u", "kafka.sasl.password": CANARY},
]


def plans(frame: Any) -> str:
    execution = frame._jdf.queryExecution()
    shown = [execution.toString(), execution.logical().toString(), execution.logical().toJSON()]
    return "\n".join(map(str, shown))


@pytest.mark.parametrize("way", WAYS)
def test_no_plan_of_a_read_has_the_password(spark: Any, way: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    frame = spark.read.format("ottla").options(**LOGIN, **way, subscribe="t").load().where("offset > 3")
    frame.explain("extended")
    assert CANARY not in plans(frame) + "".join(capfd.readouterr())
    stream = spark.readStream.format("ottla").options(**LOGIN, **way, subscribe="t").load()
    assert CANARY not in plans(stream)


def test_a_file_keeps_secrets_out_of_options(spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS}\n")
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "client.config": str(file), "subscribe": "t"}
    frame = spark.read.format("ottla").options(**options).load()
    assert CANARY not in plans(frame)
    with pytest.raises(Exception, match="no broker can be reached") as failed:
        frame.collect()
    assert CANARY not in str(failed.value)
