"""How to run a pipeline, whichever it is, and the security of the clusters that it reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from ottla.client.properties import read_file, replaced, security_from
from ottla.client.security import Security
from ottla.client.security_settings import Sides, WrongSecurity, normalized, sides_of
from ottla.pipelines.runner import state
from ottla.pipelines.runner.errors import PipelineError

SOURCE_ENVIRONMENT: Final = "OTTLA_MIRROR_FROM_"
"""Prefix of the variables for the cluster that a mirror reads."""
RESTARTS_MAX: Final = 10
"""Failures of a query in a row, without a batch between them."""


@dataclass(frozen=True)
class Options:
    """How to run a pipeline, whichever it is."""

    bootstrap: str
    directory: Path = field(default_factory=state.default_directory)
    checkpoints: str | None = None
    """Where checkpoints are, if not in the directory: on a cluster a URL that executors reach."""
    master: str | None = "local[*]"
    """Spark's; None: what `spark-submit` was told."""
    once: bool = False
    every: str | None = None
    """Time between two batches, as `10 seconds`; the next one begins at once by default."""
    partitions: int = 3
    """Partitions of topics that are created."""
    batch_records: int | None = None
    """Records that a batch takes of a topic at most."""
    restarts_max: int = RESTARTS_MAX
    registry: str | None = None
    """URL of a schema registry, several with commas."""
    format: str = "json"
    """Format of values that queries write: json, or with a registry avro or protobuf."""
    metrics: tuple[str, int] | None = None
    archive: Path | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark."""
    client_config: Path | None = None
    """A client.properties with the security of the cluster; the environment (OTTLA_CLIENT_...) says what it does not.
    Settings with the prefix `source.` are for the cluster that is mirrored."""
    source_config: Path | None = None
    """A client.properties for the cluster that is mirrored."""

    @cached_property
    def security(self) -> Security:
        """Raises PipelineError."""
        return _security(lambda: security_from(self._sides.target))

    @cached_property
    def source_security(self) -> Security:
        """Security of the cluster that is mirrored: no secret of the other one is sent there. Raises PipelineError."""
        return _security(lambda: security_from(self._source(), prefix=SOURCE_ENVIRONMENT))

    @property
    def _sides(self) -> Sides:
        return sides_of({} if self.client_config is None else read_file(self.client_config))

    def _source(self) -> dict[str, str]:
        own = {} if self.source_config is None else normalized(read_file(self.source_config))
        return replaced(normalized(self._sides.source), own)


def _security(read: Callable[[], Security]) -> Security:
    try:
        return read()
    except WrongSecurity as error:
        raise PipelineError(str(error)) from None
