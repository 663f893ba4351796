"""What a pipeline's `build` is given: Spark, its settings, its topics, and queries that are looked after."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.client.security import PLAINTEXT, Security
from ottla.pipelines.runner import checkpoint
from ottla.pipelines.runner.errors import PipelineError, Value
from ottla.pipelines.runner.registry import FORMATS, fitted, format_of
from ottla.pipelines.runner.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.pipelines.runner.options import Options

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"


@dataclass
class Started:
    """A query, and how it is started again."""

    name: str
    start: Callable[[], Any]
    query: Any
    groups: tuple[tuple[str, str], ...] = ()
    """Topics that it reads, each with the consumer group in which its source shows progress."""


@dataclass
class Step:
    """A step that the driver repeats beside the queries."""

    name: str
    function: Callable[[], None]
    every_s: float
    due_at: float = 0.0
    """Due time of the monotonic clock."""
    query: Callable[[], Any] | None = None
    """The query whose progress is shown for this step."""
    bootstrap: str = ""
    """Where the topics of that query are."""
    security: Security = PLAINTEXT
    """Security of the cluster there."""


class Named(Protocol):
    """The pipeline of a job: `Pipeline`."""

    @property
    def name(self) -> str: ...


class Job:
    """One run of a pipeline. `job["name"]` is the value of a setting."""

    def __init__(
        self,
        pipeline: Named,
        options: Options,
        settings: dict[str, Value],
        spark: Callable[[], SparkSession],
        checkpoints: str,
    ) -> None:
        self.pipeline = pipeline
        self.bootstrap = options.bootstrap
        self.security = options.security
        self.client = {"kafka.bootstrap.servers": options.bootstrap}
        """Options of sources and sinks of Spark for the cluster. Secrets are not among them, for options are in plans:
        the driver reads them from the file."""
        if options.client_config is not None:
            self.client["client.config"] = str(options.client_config.absolute())
        self.registry = options.registry
        """URL of a schema registry."""
        self.format = options.format
        """Format of values that queries write."""
        self.is_once = options.once
        """Whether it ends when all that was there at its start is done."""
        self.checkpoints = checkpoints
        """A directory, or a URL that executors reach too."""
        self.dead_letter_topic = f"{pipeline.name}-dead-letters"
        self.queries: list[Started] = []
        self.steps: list[Step] = []
        self.feedback: set[str] = set()
        """Topics that queries read and write."""
        self.options = options
        """How to run a pipeline, whichever it is."""
        self._settings = settings
        self._ensured: set[str] = set()
        self._spark = spark

    @property
    def spark(self) -> SparkSession:
        """Spark, which starts when first asked for: what only has steps needs none. Raises PipelineError."""
        return self._spark()

    def __getitem__(self, setting: str) -> Any:
        """The value of a setting, with the type of its default. Raises PipelineError for a setting that the module does
        not list."""
        if setting not in self._settings:
            raise PipelineError(f"{self.pipeline.name} asks for a setting {setting}, which is not in SETTINGS")
        return self._settings[setting]

    def topic(self, setting: str, *, partitions: int | None = None, **configs: str) -> str:
        """The topic that a setting names, created where it is missing; `cleanup_policy="compact"` is a config.

        Raises KafkaError, OSError.
        """
        name = str(self[setting])
        self.ensure_topic(name, partitions, **configs)
        return name

    def topics(self) -> Topics:
        """The cluster's topics; to be closed."""
        return Topics(self.bootstrap, security=self.security)

    def ensure_topic(self, name: str, partitions: int | None = None, **configs: str) -> None:
        """The same for a topic by its own name."""
        if name in self._ensured:
            return
        with closing(self.topics()) as topics:
            given = {config.replace("_", "."): value for config, value in configs.items()}
            topics.ensure(name, partitions or self.options.partitions, given)
        self._ensured.add(name)

    def read(
        self,
        setting: str,
        schema: str | None = None,
        *,
        format: str | None = None,
        key_format: str = "string",
        group: str | None = None,
        dead_letters: bool = True,
        **options: str,
    ) -> DataFrame:
        """A stream of the topic that a setting names, from its beginning: the source's columns, `value` by `format`.

        `schema` is DDL for json (the default where there is one), Avro's JSON for avro. With a schema registry that has
        the subject TOPIC-value, values are read by it, whatever their format is there, and get the columns of DDL where
        `schema` is such; without `schema` they have those of the newest version.

        Records that cannot be read go to the pipeline's dead-letter topic, so that they hold up nothing. Progress is
        committed to the consumer group `ottla-NAME`. Where a pipeline reads a topic twice, the second has a `group`,
        which is added to that name, and `dead_letters=False`: what cannot be read is only left out. `options` are
        further ones of the source, `_` for `.`: `includeHeaders="true"`.
        """
        return self._source(
            (self.topic(setting),),
            schema,
            format=format,
            key_format=key_format,
            group=group,
            dead_letters=dead_letters,
            **options,
        )

    def read_together(self, query: str, settings: tuple[str, ...], schema: str) -> DataFrame:
        """A stream of several topics that have the same schema, as `read` gives it of one, for a query with this name.

        A source costs a Python process for each start of a query, and each batch asks it in turn: the topics are one
        source. With a schema registry each topic has a schema, and thus a source, of its own; so it is under a
        checkpoint of an earlier build, which has the offsets of as many sources.
        """
        topics = tuple(self.topic(setting) for setting in settings)
        if self.registry is None and checkpoint.sources(self.spark, self._checkpoint(query)) in (None, 1):
            return self._source(topics, schema)
        return reduce(lambda frame, other: frame.unionByName(other), [self._source((each,), schema) for each in topics])

    def _source(
        self,
        topics: tuple[str, ...],
        schema: str | None = None,
        *,
        format: str | None = None,
        key_format: str = "string",
        group: str | None = None,
        dead_letters: bool = True,
        **options: str,
    ) -> DataFrame:
        """Several topics have no registry: their schemas may differ there."""
        registered = self._registered(topics[0], format)
        format = registered or format or ("json" if schema is not None else "binary")
        chosen = {
            **self.client,
            "subscribe": ",".join(topics),
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
            "commit.group": f"ottla-{self.pipeline.name}" + (f"-{group}" if group else ""),
            "value.format": format,
            "key.format": key_format,
        }
        if self.options.batch_records is not None:
            chosen["maxOffsetsPerTrigger"] = str(self.options.batch_records)
        if registered is not None:
            chosen["schema.registry.url"] = self.registry or ""
        elif schema is not None:
            chosen["value.schema"] = schema
        if format != "binary":
            if dead_letters:
                self.ensure_topic(self.dead_letter_topic)
                chosen |= {"bad.records": "dead-letter", "dead.letter.topic": self.dead_letter_topic}
            else:
                chosen["bad.records"] = "drop"
        chosen |= {name.replace("_", "."): value for name, value in options.items()}
        found = self.spark.readStream.format("ottla").options(**chosen).load()
        return found if registered is None or schema is None or _is_json(schema) else fitted(found, schema)

    def _registered(self, topic: str, format: str | None) -> str | None:
        """The format of the topic's values in the registry; None: there is none, or they are not read by it."""
        if self.registry is None:
            if format == "protobuf":
                raise PipelineError(f"{self.pipeline.name} needs a schema registry for protobuf: give --registry")
            return None
        return format_of(self.registry, topic) if format in (None, *FORMATS) else None

    def write(
        self,
        query: str,
        frame: DataFrame,
        setting: str,
        *,
        key: str | None = None,
        mode: str = "append",
        format: str | None = None,
        delivery: str = EXACTLY_ONCE,
        **options: str,
    ) -> None:
        """Start a query that writes the columns of `frame` as values, exactly once, to the topic that a setting names.
        The format is JSON, or what the run says; with a schema registry its schema is registered.

        `key` is an expression of SQL, often a column's name. In mode update and complete each change of a group is a
        record: let its key be what it is grouped by. `options` are further ones of the sink, `_` for `.`.
        """
        from pyspark.sql import functions as F

        value = F.struct(*[F.col(f"`{name}`") for name in frame.columns]).alias("value")
        columns = [value] if key is None else [F.expr(f"cast({key} as string)").alias("key"), value]
        self.write_records(
            query,
            frame.select(*columns),
            setting,
            mode=mode,
            format=format or self.format,
            delivery=delivery,
            **options,
        )

    def write_records(
        self,
        query: str,
        frame: DataFrame,
        setting: str,
        *,
        mode: str = "append",
        format: str = "binary",
        delivery: str = EXACTLY_ONCE,
        **options: str,
    ) -> None:
        """The same for a frame that has the columns of the sink: `value`, and `key`, `headers`, `partition`, ..."""
        self.write_to(query, frame, mode=mode, format=format, delivery=delivery, topic=self.topic(setting), **options)

    def write_to(
        self,
        query: str,
        frame: DataFrame,
        *,
        mode: str = "append",
        format: str = "binary",
        delivery: str = EXACTLY_ONCE,
        **options: str,
    ) -> None:
        """The same where the column `topic` says for each row where it goes; `topic` has made those that are missing.
        A batch is one transaction, whatever it writes to. A schema is registered for one `topic`, or under
        `value_subject`; without either, values are as the format alone has them."""
        frame = _no_null_headers(frame)
        chosen = {
            **self.client,
            "delivery": delivery,
            "value.format": format,
            "kafka.compression.type": "lz4",
        }
        has_subject = "topic" in options or "value_subject" in options
        if self.registry is not None and format in FORMATS and has_subject:
            chosen["schema.registry.url"] = self.registry
        chosen |= {name.replace("_", "."): value for name, value in options.items()}
        if mode == "append":
            self.start(query, frame.writeStream.format("ottla").options(**chosen).outputMode(mode))
            return

        # Spark takes no sink in Python for updates; a batch that is written again under its id does nothing.
        def write(batch: DataFrame, number: int) -> None:
            given = chosen
            if delivery == EXACTLY_ONCE:
                given = {**chosen, "write.id": f"{query_id(batch)}-{number}"}
            batch.write.format("ottla").options(**given).mode("append").save()

        self.batches(query, frame, write, mode=mode)

    def feeds_back(self, setting: str) -> None:
        """Say that queries read from the topic of this setting what they write there themselves: a run with `once` is
        over when that is done too."""
        self.feedback.add(self.topic(setting))

    def batches(
        self, query: str, frame: DataFrame, function: Callable[[DataFrame, int], None], *, mode: str = "append"
    ) -> None:
        """Start a query that hands each micro-batch with its number to `function`. After a failure the same number
        comes again: let the function see that it is done already."""
        self.start(query, frame.writeStream.foreachBatch(function).outputMode(mode))

    def start(self, query: str, writer: DataStreamWriter) -> None:
        """Start a query of the pipeline's own making: its name, checkpoint and trigger are set here."""
        if any(started.name == query for started in self.queries):
            raise PipelineError(f"{self.pipeline.name} has two queries {query}")
        writer = writer.queryName(f"{self.pipeline.name}.{query}")
        writer = writer.option("checkpointLocation", self._checkpoint(query))
        if self.is_once:
            writer = writer.trigger(availableNow=True)
        elif self.options.every:
            writer = writer.trigger(processingTime=self.options.every)
        groups = groups_of(writer._df)
        self.queries.append(Started(query, writer.start, writer.start(), groups))

    def _checkpoint(self, query: str) -> str:
        return f"{self.checkpoints.rstrip('/')}/{query}"

    def step(
        self,
        name: str,
        function: Callable[[], None],
        *,
        every_s: float,
        query: Callable[[], Any] | None = None,
        bootstrap: str | None = None,
        security: Security | None = None,
    ) -> None:
        """Have the driver call a function again and again, between looks at the queries; once at least, and once more
        at the end of a run. What it raises ends the run, as a query does that fails for good.

        A step may have a query of its own, that it starts as it needs: `query` gives it, or None, so that it is shown
        among the others, and stopped at the end. `bootstrap` is where its topics are, if elsewhere, and `security` that
        of the cluster there.
        """
        if bootstrap is None:
            bootstrap, security = self.bootstrap, self.security
        self.steps.append(Step(name, function, every_s, time.monotonic(), query, bootstrap, security or PLAINTEXT))


def groups_of(frame: DataFrame) -> tuple[tuple[str, str], ...]:
    """Topics that a stream reads, each with the group that `commit.group` names. Spark's plan has the options of its
    sources; a query's progress does not say them."""
    found = set()
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() != "StreamingRelationV2":
            continue
        options = leaf.extraOptions()
        group, topics = options.get("commit.group"), options.get("subscribe")
        if group and topics:
            found |= {(topic.strip(), str(group)) for topic in topics.split(",")}
    return tuple(sorted(found))


def _no_null_headers(frame: DataFrame) -> DataFrame:
    """Spark's Arrow writer looks again at all null lists of a batch with each row of it: empty ones cost nothing."""
    from pyspark.sql import functions as F

    if "headers" not in frame.columns:
        return frame
    none = F.array().cast(frame.schema["headers"].dataType)
    return frame.withColumn("headers", F.coalesce("headers", none))


def _is_json(schema: str) -> bool:
    """Avro's schemas are; DDL never is."""
    return schema.lstrip()[:1] in ("{", "[", '"')


def query_id(batch: DataFrame) -> str:
    """Id of the query that a micro-batch belongs to: constant as long as its checkpoint lives, over restarts."""
    return str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
