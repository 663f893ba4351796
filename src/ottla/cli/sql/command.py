"""`ottla sql`: a statement of SQL over topics, by DuckDB, which reads of them what the statement needs."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter

from ottla.cli import client_security
from ottla.cli.client import CLIENT_ID, REQUEST_TIMEOUT_S, probe
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, MISUSED, OK, UNREACHABLE, CommandFailed
from ottla.cli.interrupts import in_thread
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.records.positions import chosen, stretch
from ottla.cli.records.reader import Reader
from ottla.cli.schema.access import DEFAULT_URL, RegistryUrl, complaints
from ottla.cli.values import Partition, Text

if TYPE_CHECKING:
    from ottla.sql.topics import TopicTable

BATCH_ROWS = 4096
"""Rows that are taken from DuckDB at once; it stops reading topics soon after nobody takes more."""
HINTS_MAX = 4
"""Lines of DuckDB's that are shown: it can name every function that there is."""

Form = Literal["table", "csv", "json"]
ValueFormat = Literal["binary", "string", "json", "avro", "json-schema", "protobuf"]
BadRecords = Literal["fail", "column", "drop"]

_MISTAKES = ("ParserException", "BinderException", "CatalogException", "SyntaxException")
"""DuckDB's exceptions for a wrong statement."""
_NO_TABLE = re.compile(r"Table with name (.+?) does not exist")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def sql(
    statement: Text,
    /,
    *,
    from_: Annotated[Text | None, Parameter(name="--from", allow_leading_hyphen=True)] = None,
    to: Annotated[Text | None, Parameter(allow_leading_hyphen=True)] = None,
    partition: Annotated[list[Partition] | None, Parameter(alias="-p", negative="", consume_multiple=False)] = None,
    format: Annotated[Form | None, Parameter(alias="-o", show_default=False)] = None,
    value_format: ValueFormat | None = None,
    value_schema: Text | None = None,
    key_format: ValueFormat | None = None,
    key_schema: Text | None = None,
    registry: RegistryUrl = DEFAULT_URL,
    bad_records: BadRecords | None = None,
    uncommitted: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Query topics with SQL (DuckDB's); each topic is a table. Needs the extra `sql`.

    A topic has the columns key, value, topic, partition, offset, timestamp, timestampType and headers. Keys and values
    are bytes unless --key-format and --value-format are given. Only columns that the query uses are decoded, rows are
    shown while more are read, and LIMIT ends reading early. Quote names that are not identifiers, "my-topic", and SQL
    keywords, "offset". Times are in UTC.

    Parameters
    ----------
    statement
        The query, such as 'select key, count(*) from orders group by key'.
    from_
        Where to begin in every topic, as for `ottla consume`: beginning, end, an offset, -N for the last N records of
        each partition, a time, or an age.
    to
        Where to stop (exclusive), in the same forms. Default: the current end of each topic.
    partition
        Read only this partition of every topic; may be repeated.
    format
        table, csv, or json: an object a row.
    value_format
        Format of values: binary, string, json or avro; avro, json-schema and protobuf use a schema registry. Fields are
        columns: value.name.
    value_schema
        For avro: the schema as JSON, if no registry has it. For json: 'name STRING, amount DOUBLE'; without it the
        schema is inferred from the first 1000 records.
    key_format
        Format of keys, as for --value-format.
    key_schema
        Schema of keys, as for --value-schema.
    bad_records
        What to do with a key or value that cannot be decoded: fail, drop the record, or column: null, with its bytes in
        _corrupt_record or _corrupt_key. Default: fail.
    uncommitted
        Include records of open and aborted transactions.
    json
        Short for --format json.
    """
    if json and format not in (None, "json"):
        raise CommandFailed("--format and --json cannot be used together", MISUSED)
    options = {
        "value.format": value_format,
        "value.schema": value_schema,
        "key.format": key_format,
        "key.schema": key_schema,
        "bad.records": bad_records,
    }
    _run(
        statement,
        _Wanted(bootstrap, from_ or "beginning", to, partition, uncommitted),
        {name: value for name, value in options.items() if value is not None},
        registry,
        "json" if json else format or "table",
    )
    return OK


class _Wanted(NamedTuple):
    """The data to read of each topic."""

    bootstrap: str
    start: str
    to: str | None
    partitions: list[int] | None
    uncommitted: bool


def _run(statement: str, wanted: _Wanted, options: dict[str, str], registry: str, form: str) -> None:
    try:
        import duckdb

        from ottla.cli.sql.formats import by_registry, ensure_formats
        from ottla.cli.sql.output import FORMATS
        from ottla.sql.topics import Slice, TopicTable
    except ImportError as error:
        raise CommandFailed(f"this needs DuckDB and pyarrow ({error})\n  pip install 'ottla[sql]'") from None
    try:
        ensure_formats(options)
    except ValueError as error:
        raise CommandFailed(str(error), MISUSED) from None
    except ImportError as error:
        raise CommandFailed(f"this format needs {error.name}\n  pip install 'ottla[sql]'") from None
    probe(wanted.bootstrap)

    def table(topic: str) -> TopicTable:
        reader = Reader(wanted.bootstrap, topic, uncommitted=wanted.uncommitted)
        numbers = chosen(topic, reader.partitions, wanted.partitions)
        starts, stops = stretch(reader, numbers, wanted.start, wanted.to, False)
        spans = {number: (starts[number], stop) for number, stop in (stops or {}).items()}
        with complaints():
            found = by_registry(options, registry, topic)
        security = client_security.current()
        return TopicTable(Slice(wanted.bootstrap, topic, spans, reader.offsets, wanted.uncommitted, security), found)

    _Query(duckdb, statement, _topics(wanted.bootstrap), table).run(FORMATS[form])


def _topics(bootstrap: str) -> list[str]:
    from ottla.client.cluster import Cluster
    from ottla.client.config import ClientConfig, parse_addresses

    cluster = Cluster(
        ClientConfig(
            parse_addresses(bootstrap),
            CLIENT_ID,
            request_timeout_s=REQUEST_TIMEOUT_S,
            security=client_security.current(),
        )
    )
    try:
        return cluster.topics()
    except OSError as error:
        raise CommandFailed(str(error), UNREACHABLE) from None
    finally:
        cluster.close()


class _Query:
    """A statement, the tables that it reads, and what its errors mean."""

    def __init__(self, duckdb: Any, statement: str, topics: list[str], table: Callable[[str], TopicTable]) -> None:
        self._duckdb = duckdb
        self._statement = statement
        self._topics = topics
        self._table = table
        self._tables: dict[str, TopicTable] = {}
        # What does not fit into memory goes to the disk; by default into the current directory.
        place = os.path.join(tempfile.gettempdir(), f"ottla-sql-{os.getpid()}")
        self._connection = duckdb.connect(":memory:", config={"temp_directory": place})
        self._connection.execute("SET python_enable_replacements = false; SET TimeZone = 'UTC'")

    def run(self, output: Callable[[Any], Any]) -> None:
        """Print the result. Raises CommandFailed."""
        try:
            for name, topic in self._named():
                self._tables[topic] = self._table(topic)
                self._connection.register(name, self._tables[topic])
            relation = in_thread(self._connection.sql, self._statement)
            if relation is not None:
                self._print(relation, output)
        except self._duckdb.Error as error:
            raise self._explained(error) from None
        except BaseException:
            self._connection.interrupt()
            raise
        self._connection.close()

    def _print(self, relation: Any, output: Callable[[Any], Any]) -> None:
        # Its name before DuckDB 1.4 was another.
        reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        batches = in_thread(reader, BATCH_ROWS)
        printed = output(batches.schema)
        while (batch := in_thread(_following, batches)) is not None:
            printed.add(batch)
        printed.end()

    def _named(self) -> list[tuple[str, str]]:
        from ottla.sql.names import Ambiguous, named

        try:
            return named(self._duckdb, self._connection, self._statement, self._topics)
        except Ambiguous as error:
            raise CommandFailed(str(error), MISUSED) from None

    def _explained(self, error: Exception) -> CommandFailed:
        failures = [(topic, table.failure) for topic, table in self._tables.items() if table.failure is not None]
        if failures:
            topic, failure = failures[0]
            if isinstance(failure, CommandFailed):
                return failure
            unreachable = isinstance(failure, OSError)
            return CommandFailed(f"topic {topic!r}: {failure}", UNREACHABLE if unreachable else FAILED)
        sentence, *lines = str(error).splitlines()
        hints = [line.expandtabs(2) for line in lines if line.strip()]
        if len(hints) > HINTS_MAX:
            hints = [*hints[:HINTS_MAX], "..."]
        unquoted = [topic for topic in self._topics if self._is_unquoted(topic)]
        missing = _NO_TABLE.search(sentence)
        if unquoted:
            hints.append(f'put double quotes around the name: from "{unquoted[0]}"')
        elif missing:
            where = "see the topics with: ottla topic list"
            return CommandFailed(f"there is no topic {missing[1]!r}\n  {where}", FAILED)
        elif "Could not find key" in sentence and self._tables:
            hints.append("declare a field that the first records lack with --value-schema or --key-schema")
        elif "BLOB" in str(error) or "because it is not a struct" in sentence:
            hints.append("keys and values are bytes unless decoded: see --value-format and --key-format")
        code = MISUSED if type(error).__name__ in _MISTAKES else FAILED
        return CommandFailed("\n  ".join([sentence, *hints]), code)

    def _is_unquoted(self, topic: str) -> bool:
        edge = r"[\"\w.-]"
        return not _PLAIN_NAME.fullmatch(topic) and bool(
            re.search(rf"(?<!{edge}){re.escape(topic)}(?!{edge})", self._statement)
        )


def _following(batches: Any) -> Any:
    try:
        return batches.read_next_batch()
    except StopIteration:
        return None
    except Exception as error:
        raise _as_duckdb_says(error) from None


def _as_duckdb_says(error: Exception) -> Exception:
    """Arrow's streams carry errors as texts only."""
    import duckdb

    return error if isinstance(error, duckdb.Error) else duckdb.Error(str(error))
