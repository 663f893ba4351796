"""Security of a pipeline: of its cluster and of the one that is mirrored, and what its status shows of settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.security import PLAINTEXT
from ottla.pipelines.runner import Options, Pipeline, PipelineError, Run, Setting
from ottla.pipelines.runner.job import Job

CANARY = "cAnArY-40e2"
FILE = f"""security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.username=here
sasl.password={CANARY}
source.security.protocol=SSL
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("OTTLA_CLIENT_CONFIG", raising=False)
    (tmp_path / "client.properties").write_text(FILE)
    return tmp_path / "client.properties"


def pipeline(*settings: Setting) -> Pipeline:
    return Pipeline("secured", "", settings, lambda job: None, Path(__file__))


def test_both_clusters(file: Path, tmp_path: Path) -> None:
    options = Options("h:1", directory=tmp_path, client_config=file)
    assert options.security.login is not None and options.security.login.username == "here"
    assert options.source_security.protocol == "SSL" and options.source_security.login is None
    assert CANARY not in repr(options)
    other = Options("h:1", directory=tmp_path, client_config=file, source_config=file)
    assert other.source_security.protocol == "SASL_PLAINTEXT"
    assert Options("h:1", directory=tmp_path).security == PLAINTEXT


def test_options_of_spark_name_the_file_alone(file: Path, tmp_path: Path) -> None:
    options = Options("h:1", directory=tmp_path, client_config=file)
    job = Job(pipeline(), options, {}, lambda: None, str(tmp_path))  # type: ignore[arg-type, return-value]
    assert job.client == {"kafka.bootstrap.servers": "h:1", "client.config": str(file)}


def test_wrong_settings_are_an_error_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "wrong.properties").write_text("security.protocol=TLS\n")
    with pytest.raises(PipelineError, match=r"security\.protocol: expected one of"):
        Run(pipeline(), Options("h:1", directory=tmp_path, client_config=tmp_path / "wrong.properties"), {})


def test_a_status_shows_no_password(tmp_path: Path) -> None:
    chosen = pipeline(
        Setting("dsn", "", "a database"), Setting("password", "", "its password"), Setting("topic", "t", "")
    )
    given = {"dsn": f"postgresql://u:{CANARY}@h/d", "password": CANARY}
    run = Run(chosen, Options("h:1", directory=tmp_path), given)
    assert run.status.settings == {"dsn": "[hidden]", "password": "[hidden]", "topic": "t"}
    assert run.settings["password"] == CANARY
