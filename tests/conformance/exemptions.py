"""Where answers differ from Kafka's on purpose: a field of an API, when that holds, and the reason.

Each reason is in docs/reference/compatibility.md, under "Where answers differ on purpose". A row that no difference
needs any more fails a `test_every_exemption_is_used`, as does one that nothing documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.protocol.messages import ApiKey

MISSING = "missing"
"""Stands for a field or a row that one of the answers lacks."""


class Difference(NamedTuple):
    """A difference of one field, or a row that only one side has."""

    path: str
    """As it is shown, with what names the rows."""
    field: str
    """Names of fields from the outside in, with dots."""
    mine: Any
    theirs: Any
    rows: tuple[tuple[Any, Any], ...] = ()
    """The rows around it, mine and theirs, the innermost last."""

    def __str__(self) -> str:
        return f"{self.path}: {self.mine!r}, Kafka {self.theirs!r}"


class Seen(NamedTuple):
    """A difference with what was asked."""

    request: Mapping[str, Any]
    difference: Difference

    @property
    def mine(self) -> Any:
        return self.difference.mine

    @property
    def theirs(self) -> Any:
        return self.difference.theirs

    def row(self, depth: int = -1) -> tuple[dict[str, Any], dict[str, Any]]:
        """Mine and theirs around the field; empty where there is none."""
        mine, theirs = self.difference.rows[depth] if self.difference.rows else ({}, {})
        return (mine if isinstance(mine, dict) else {}), (theirs if isinstance(theirs, dict) else {})

    def asked(self, *names: str) -> Iterator[Mapping[str, Any]]:
        """The rows of the request below these fields."""
        rows: list[Mapping[str, Any]] = [self.request]
        for name in names:
            rows = [each for row in rows for each in row.get(name) or ()]
        yield from rows


class Exempt(NamedTuple):
    api: ApiKey
    fields: str
    """Separated by spaces."""
    reason: str
    when: Callable[[Seen], Any]
    used_by: str = "answers"
    """Which cases cannot do without: `answers`, `streams`, `random`, `log`; or none that is always there."""

    def covers(self, api: ApiKey, seen: Seen) -> bool:
        return api is self.api and seen.difference.field in self.fields.split() and bool(self.when(seen))


SENTENCES = (
    "Messages that explain why records or a regular expression were "
    "refused are Ottla's own; the error codes are Kafka's."
)
NAMED_ERRORS = "Where Kafka answers UNKNOWN_SERVER_ERROR to a request that makes no sense, Ottla names the error."
OWN_SETTINGS = (
    "DescribeConfigs of a group shows Ottla's own settings, and those of warm-up tasks and task offsets, which are "
    "internal in Kafka."
)
MISSING_TOPICS = "A streams group continues if a topic of its tasks is missing or was deleted."
REPEATED_TASKS = "A member of a streams group that reports other tasks than it has is told its tasks again."
NEGATIVE_SIZES = "Sizes below zero in a Fetch count as zero."
TIMEOUTS = "Administrative requests are answered when they are done; their time limits are ignored."
UNBOUNDED = "Numbers of threads that Ottla does not have are accepted, whatever their value."
AT_START = "More settings of a node are read at start only, and the answer says so."
VOTERS = "A single node without a listener for other controllers has fixed voters: kraft.version is 0 and stays 0."
ONE_PROCESS = "A node that is broker and controller needs no CONTROLLER listener, and its quorum knows its directory."
TWICE = "A partition that one Produce request names twice is appended to twice and answered twice."
ONCE = (
    "An offset that a request commits or deletes twice is answered once; a topic without partitions is in the answer."
)
LARGEST_TIME = (
    "ListOffsets for the largest timestamp considers records that can be "
    "read and have a timestamp; Kafka may name one below the log start."
)
INTERNAL_IN_KAFKA = {
    "streams.num.warmup.replicas", "streams.acceptable.recovery.lag", "streams.task.offset.interval.ms",
}  # fmt: skip
OF_EACH = ""
"""Fields that differ between any two brokers; nothing to explain."""
TELEMETRY = (
    "Client telemetry is offered once there is a subscription, and asks for counters as sums since the client began; "
    "Kafka offers it with a plug-in, and asks for what was added since the last push."
)


def _unknown_server_error_is_named(seen: Seen) -> bool:
    return seen.theirs == "unknown_server_error" and seen.mine not in ("none", MISSING)


def _kafka_fails(seen: Seen) -> bool:
    return bool(seen.row()[1].get("error_code") == "unknown_server_error")


def _fails_only_there(seen: Seen) -> bool:
    return _kafka_fails(seen) and seen.row()[0]["error_code"] == "none"


def _reports_other_tasks(seen: Seen) -> bool:
    return seen.theirs is None and seen.request["active_tasks"] is not None and not _kafka_fails(seen)


def _is_our_own_setting(seen: Seen) -> bool:
    mine = seen.mine if isinstance(seen.mine, dict) else {}
    name = str(mine.get("name"))
    return seen.theirs == MISSING and (name.startswith("ottla.") or name in INTERNAL_IN_KAFKA)


def _isolation_is_unknown(seen: Seen) -> bool:
    return seen.request["isolation_level"] not in (0, 1)


def _a_size_is_negative(seen: Seen) -> bool:
    sizes = [seen.request["max_bytes"], seen.request["min_bytes"]]
    return min(*sizes, *(each["partition_max_bytes"] for each in seen.asked("topics", "partitions"))) < 0


def _largest_time_of_what_can_be_read(seen: Seen) -> bool:
    """Ottla finds nothing, or a record that comes after the one that Kafka names."""
    mine, theirs = seen.row()
    largest = any(each["timestamp"] == -3 for each in seen.asked("topics", "partitions"))
    return largest and (mine["offset"] == -1 or mine["offset"] > theirs["offset"])


def _row_was_asked_twice(seen: Seen, *below: str, name: str = "partition_index") -> bool:
    row = next((each for each in (seen.mine, seen.theirs, *seen.row()) if isinstance(each, dict) and name in each), {})
    asked_name = "index" if below[0] == "topic_data" else name
    return [each[asked_name] for each in seen.asked(*below)].count(row.get(name)) > 1


def _partition_was_asked_twice(seen: Seen) -> bool:
    return seen.mine == MISSING and _row_was_asked_twice(seen, "topics", "partitions")


def _setting_was_asked(seen: Seen, wanted: str) -> bool:
    return any(each["name"] == wanted for each in seen.asked("resources", "configs"))


def _cleaner_threads(seen: Seen) -> bool:
    return _setting_was_asked(seen, "log.cleaner.threads")


def _at_start_only(seen: Seen) -> bool:
    return str(seen.mine).startswith("Ottla reads these configs at start only") and bool(seen.theirs)


def _at_start_here(seen: Seen) -> bool:
    """Kafka takes new listeners of a broker that is no controller."""
    mine, theirs = seen.row()
    return (
        str(mine["error_message"]).startswith("Ottla reads these configs at start only")
        and theirs["error_code"] == "none"
    )


def _of_key_type(key_type: int) -> Callable[[Seen], bool]:
    return lambda seen: seen.request.get("key_type") == key_type


def _both_explain(seen: Seen) -> bool:
    return all(isinstance(each, str) and each != MISSING for each in (seen.mine, seen.theirs))


_PRODUCED = "responses.partition_responses"
_FETCHED = "responses.partitions"
_CONFIGS = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)


def _below(prefix: str, *names: str) -> str:
    return " ".join(f"{prefix}.{name}" for name in names)


EXEMPTIONS = [
    Exempt(ApiKey.LIST_OFFSETS, _below("topics.partitions", "offset", "timestamp", "leader_epoch"), LARGEST_TIME,
           _largest_time_of_what_can_be_read, used_by="log"),
    Exempt(ApiKey.FETCH, "error_code responses.partitions.error_code", NAMED_ERRORS, _unknown_server_error_is_named),
    Exempt(ApiKey.METADATA, "error_code topics.error_code", NAMED_ERRORS, _unknown_server_error_is_named),
    Exempt(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "topics.error_code", NAMED_ERRORS, _unknown_server_error_is_named),
    Exempt(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "topics.topic_authorized_operations", NAMED_ERRORS,
           lambda seen: seen.row()[1]["error_code"] == "unknown_server_error"),
    Exempt(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "topics", NAMED_ERRORS,
           lambda seen: seen.mine == MISSING and seen.theirs["error_code"] == "unknown_server_error",
           used_by="random"),
    Exempt(ApiKey.FETCH, f"responses {_FETCHED}.aborted_transactions", NAMED_ERRORS, _isolation_is_unknown),
    Exempt(ApiKey.FETCH, _below(_FETCHED, "error_code", "high_watermark", "last_stable_offset", "log_start_offset",
                                "records"), NEGATIVE_SIZES, _a_size_is_negative),
    Exempt(ApiKey.OFFSET_COMMIT, "topics.partitions", ONCE, _partition_was_asked_twice),
    Exempt(ApiKey.OFFSET_COMMIT, "topics", ONCE,
           lambda seen: seen.theirs == MISSING and seen.mine["partitions"] == []),
    Exempt(ApiKey.OFFSET_DELETE, "topics.partitions", ONCE, _partition_was_asked_twice),
    Exempt(ApiKey.PRODUCE, f"{_PRODUCED} {_below(_PRODUCED, 'error_code', 'base_offset', 'log_start_offset')}", TWICE,
           lambda seen: _row_was_asked_twice(seen, "topic_data", "partition_data", name="index")),
    Exempt(ApiKey.CREATE_PARTITIONS, "results.error_code", TIMEOUTS,
           lambda seen: seen.request["timeout"] < 0 and seen.theirs == "request_timed_out"),
    *(Exempt(key, "responses.error_code responses.error_message", UNBOUNDED, _cleaner_threads) for key in _CONFIGS),
    *(Exempt(key, "responses.error_message", AT_START, _at_start_only) for key in _CONFIGS),
    *(Exempt(key, "responses.error_code responses.error_message", AT_START, _at_start_here, used_by="a broker alone")
      for key in _CONFIGS),
    Exempt(ApiKey.UPDATE_FEATURES, "error_code error_message results", VOTERS,
           lambda seen: any(each["feature"] == "kraft.version" for each in seen.asked("feature_updates"))),
    Exempt(ApiKey.DESCRIBE_QUORUM, "topics.partitions.current_voters.replica_directory_id", ONE_PROCESS,
           lambda seen: seen.theirs == "no id"),
    Exempt(ApiKey.DESCRIBE_QUORUM, "nodes.listeners", ONE_PROCESS,
           lambda seen: seen.mine == MISSING and seen.theirs["name"] == "CONTROLLER"),
    Exempt(ApiKey.PRODUCE, _below(_PRODUCED, "error_message", "record_errors.batch_index_error_message"), SENTENCES,
           _both_explain, used_by="log"),
    Exempt(ApiKey.CONSUMER_GROUP_HEARTBEAT, "error_message", SENTENCES,
           lambda seen: seen.request.get("subscribed_topic_regex") and _both_explain(seen)),
    Exempt(ApiKey.DESCRIBE_CONFIGS, "results.configs", OWN_SETTINGS, _is_our_own_setting),
    Exempt(ApiKey.STREAMS_GROUP_HEARTBEAT, "error_code error_message", NAMED_ERRORS,
           lambda seen: _kafka_fails(seen) and not _fails_only_there(seen), used_by="streams"),
    Exempt(ApiKey.STREAMS_GROUP_HEARTBEAT, "error_code member_id member_epoch heartbeat_interval task_offset_interval "
           "acceptable_recovery_lag status active_tasks standby_tasks warmup_tasks endpoint_information_epoch "
           "partitions_by_user_endpoint", MISSING_TOPICS, _fails_only_there, used_by="streams"),
    Exempt(ApiKey.STREAMS_GROUP_HEARTBEAT, "active_tasks standby_tasks warmup_tasks", REPEATED_TASKS,
           _reports_other_tasks, used_by="streams"),
    Exempt(ApiKey.DESCRIBE_QUORUM, "topics.partitions.high_watermark", OF_EACH,
           lambda seen: min(seen.mine, seen.theirs) > 0),
    Exempt(ApiKey.INIT_PRODUCER_ID, "producer_id", OF_EACH,
           lambda seen: min(seen.mine, seen.theirs) >= 0),
    Exempt(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "delta_temporality", TELEMETRY,
           lambda seen: not seen.mine and seen.theirs),
    Exempt(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "subscription_id", OF_EACH,
           lambda seen: seen.request["client_instance_id"] is None, used_by="random"),
]  # fmt: skip

USED: dict[str, set[tuple[int, str]]] = {}
"""By the cases of which file (`Comparison.cases`): number and field of the exemptions that were needed."""


def is_exempt(cases: str, api: ApiKey, request: Mapping[str, Any], difference: Difference) -> bool:
    """Whether this difference is one on purpose; what covers it counts as used, every row that does."""
    seen = Seen(request, difference)
    covering = {number for number, rule in enumerate(EXEMPTIONS) if rule.covers(api, seen)}
    USED.setdefault(cases, set()).update((number, difference.field) for number in covering)
    return bool(covering)


def unused(cases: str) -> list[str]:
    """Fields of exemptions that these cases should need and did not."""
    return [
        f"{rule.api.name} {field}: {rule.reason}"
        for number, rule in enumerate(EXEMPTIONS)
        if rule.used_by == cases
        for field in rule.fields.split()
        if (number, field) not in USED.get(cases, set())
    ]
