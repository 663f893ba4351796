"""Log aggregation: lines of several hosts, parsed, counted by the minute, and kept as a table that can be searched.

Lines come from `ottla tail ... --to logs`, keyed by host. Understood are access logs of nginx and Apache (common and
combined), syslog (RFC 3164 and 5424), JSON objects with a time, and what loggers of Java and Python write: a time, a
level and a message, with the lines of a stack trace in it (`--multiline-start`). `counts` gets for each host, level and
window how many lines there were, `errors` each line of level ERROR, `table` all lines as Parquet, partitioned by date
and host. What is none of these goes to the dead-letter topic as it is. Times without a zone are UTC.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla.pipelines.runner import Job, Setting

SETTINGS = (
    Setting("input", "logs", "topic of the lines"),
    Setting("counts", "log-counts", "topic of the lines' numbers by host, level and window"),
    Setting("errors", "log-errors", "topic of the errors, keyed by host"),
    Setting("table", "log-table", "directory or URL of the Parquet files"),
    Setting("window", "1 minute", "windows of the counts"),
    Setting("delay", "1 minute", "how late a line may arrive; later ones are in the table but not counted"),
)
ACCESS = r'^(\S+) \S+ (\S+) \[([^\]]+)\] "((?:[^"\\]|\\.)*)" (\d{3}) (?:\d+|-)'
SYSLOG = r"^<(\d{1,3})>1 (\S+) \S+ (\S+) \S+ \S+ (?:-|(?:\[(?:[^\]\\]|\\.)*\])+) ?([\s\S]*)$"
OLD_SYSLOG = r"^(?:<(\d{1,3})>)?([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) \S+ ([^:\[\s]+)(?:\[\d+\])?: ?([\s\S]*)$"
LEVELS = "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|SEVERE|FATAL|CRITICAL"
LOGGER = (
    r"^\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)\]?\s+(?:\[[^\]]*\]\s+)?"
    rf"(?:\S+\s+-\s+)?\[?({LEVELS})\b\]?[\s:-]*([\s\S]*)$"
)
FIELDS = {
    "at": ("time", "timestamp", "@timestamp", "ts"), "level": ("level", "severity", "levelname"),
    "program": ("logger", "program", "service"), "message": ("message", "msg"),
}  # fmt: skip
"""JSON fields by meaning; of several present names the first counts."""
OBJECT = ", ".join(f"`{name}` STRING" for names in FIELDS.values() for name in names)


def build(job: Job) -> None:
    lines = parsed(job.read("input"))
    known = lines.where("at is not null").select("at", "host", "level", "program", "message", "format")
    table = known.withColumn("date", F.to_date("at")).writeStream.format("parquet").option("path", job["table"])
    job.start("table", table.partitionBy("date", "host").outputMode("append"))

    lines = parsed(job.read("input", group="counts", dead_letters=False)).where("at is not null")
    job.write("counts", counts(lines, job["window"], job["delay"]), "counts", key="host")

    # Errors and what is no line of a log, in one query: the column topic says where each goes.
    lines = parsed(job.read("input", group="errors", dead_letters=False))
    job.topic("errors")
    job.ensure_topic(job.dead_letter_topic)
    error = F.to_json(F.struct("at", "host", "program", "message")).cast("binary")
    job.write_to(
        "errors",
        lines.where("at is null or level = 'ERROR'").select(
            F.when(F.col("at").isNull(), job.dead_letter_topic).otherwise(job["errors"]).alias("topic"),
            F.col("host").cast("binary").alias("key"),
            F.when(F.col("at").isNull(), F.col("value")).otherwise(error).alias("value"),
        ),
    )


def counts(lines: DataFrame, window: str, delay: str) -> DataFrame:
    """A row for each window that is over, host and level."""
    windows = F.window("at", window).alias("window")
    return (
        lines.withWatermark("at", delay)
        .groupBy(windows, "host", "level")
        .agg(F.count("*").alias("lines"))
        .select(F.col("window.start").alias("start"), "host", "level", "lines")
    )


def parsed(records: DataFrame) -> DataFrame:
    """Records with `at`, `level`, `program`, `message` and `format`; `at` is null for what is not understood."""
    line = F.col("line")
    kinds = [
        (line.startswith("{"), _json(F.col("object"))),
        (line.rlike(ACCESS), _access(line)),
        (line.rlike(SYSLOG), _syslog(line)),
        (line.rlike(OLD_SYSLOG), _old_syslog(line)),
        (line.rlike(LOGGER), _logger(line)),
    ]
    found = F.coalesce(*[F.when(applies, fields) for applies, fields in kinds])
    host = F.coalesce(F.col("key").cast("string"), F.lit("unknown"))
    text = F.rtrim(F.expr("make_valid_utf8(cast(value as string))"), F.lit("\r"))
    read = records.select("value", "timestamp", host.alias("host"), text.alias("line"))
    # A column of its own: of an expression with fields of JSON Spark makes one that parses it for each field.
    read = read.withColumn("object", F.when(line.startswith("{"), F.from_json(line, OBJECT)))
    return read.withColumn("found", found).select("value", "host", "found.*")


def _fields(format: str, at: Column, level: Column, program: Column, message: Column) -> Column:
    return F.struct(
        at.alias("at"),
        level.alias("level"),
        program.alias("program"),
        message.alias("message"),
        F.lit(format).alias("format"),
    )


def _json(value: Column) -> Column:
    at, level, program, message = (F.coalesce(*[value[name] for name in names]) for names in FIELDS.values())
    level = F.coalesce(level, F.lit("INFO"))
    return _fields("json", F.try_to_timestamp(at), _level(level), program, message)


def _access(line: Column) -> Column:
    at = F.try_to_timestamp(F.regexp_extract(line, ACCESS, 3), F.lit("dd/MMM/yyyy:HH:mm:ss Z"))
    status = F.regexp_extract(line, ACCESS, 5)
    level = F.when(status >= "500", "ERROR").when(status >= "400", "WARN").otherwise("INFO")
    message = F.concat_ws(" ", status, F.regexp_extract(line, ACCESS, 4))
    return _fields("access", at, level, F.lit(None).cast("string"), message)


def _severity(priority: Column) -> Column:
    """RFC 5424, 6.2.1: the priority's last three bits; without one a notice."""
    number = F.coalesce(priority.try_cast("int"), F.lit(5)) % 8
    return F.when(number <= 3, "ERROR").when(number == 4, "WARN").when(number <= 6, "INFO").otherwise("DEBUG")


def _syslog(line: Column) -> Column:
    def part(number: int) -> Column:
        return F.regexp_extract(line, SYSLOG, number)

    return _fields("syslog", F.try_to_timestamp(part(2)), _severity(part(1)), part(3), part(4))


def _old_syslog(line: Column) -> Column:
    """RFC 3164 has no year: the one in which the line is at most a day newer than its record."""

    def part(number: int) -> Column:
        return F.regexp_extract(line, OLD_SYSLOG, number)

    def in_year(year: Column) -> Column:
        day = F.regexp_replace(part(2), "  ", " ")
        return F.try_to_timestamp(F.concat_ws(" ", year.cast("string"), day), F.lit("yyyy MMM d HH:mm:ss"))

    year = F.year("timestamp")
    late = in_year(year) > F.col("timestamp") + F.expr("interval 1 day")
    at = F.when(F.coalesce(late, F.lit(True)), in_year(year - 1)).otherwise(in_year(year))
    return _fields("syslog", at, _severity(part(1)), part(3), part(4))


def _logger(line: Column) -> Column:
    def part(number: int) -> Column:
        return F.regexp_extract(line, LOGGER, number)

    at = F.try_to_timestamp(F.regexp_replace(part(1), ",", "."))
    return _fields("logger", at, _level(part(2)), F.lit(None).cast("string"), part(3))


def _level(text: Column) -> Column:
    upper = F.upper(text)
    return (
        F.when(upper.isin("SEVERE", "FATAL", "CRITICAL", "EMERGENCY", "ALERT", "ERR"), "ERROR")
        .when(upper == "WARNING", "WARN")
        .when(upper == "NOTICE", "INFO")
        .otherwise(upper)
    )
