"""Values of a topic by a schema registry, for queries that know which columns they want."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.pipelines.runner.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMATS: Final = ("avro", "json", "protobuf")


def format_of(url: str, topic: str) -> str | None:
    """Format of the subject TOPIC-value; None if there is no such subject. Raises PipelineError, OSError."""
    try:
        from ottla.schemas.client import NOT_FOUND, Registry, RegistryError
        from ottla.schemas.options import TYPES
    except ImportError as error:
        raise PipelineError(f"--registry needs {error.name}: pip install 'ottla[registry]'") from None
    try:
        registry = Registry.of_options({"schema.registry.url": url})
    except (ValueError, ImportError) as error:
        raise PipelineError(f"registry: {error}") from None
    try:
        found = registry.version(f"{topic}-value").schema.type
    except RegistryError as error:
        if error.http_status == NOT_FOUND:
            return None
        raise PipelineError(f"registry: {error}") from None
    finally:
        registry.close()
    return next((name for name, kind in TYPES.items() if kind == found), None)


def fitted(frame: DataFrame, ddl: str) -> DataFrame:
    """The column `value` with the fields of `ddl`, by their names and in nested structs too: others are left out, those
    that are missing are null. Raises AnalysisException for types that do not go into each other."""
    from pyspark.sql.types import StructField, StructType

    wanted = StructType.fromDDL(ddl)
    fields = [StructField("value", wanted) if field.name == "value" else field for field in frame.schema.fields]
    return frame.to(StructType(fields))
