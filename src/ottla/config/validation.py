"""What may be written into the settings of a topic, a broker, a group: used by the controller before it records them.

Refusals are KafkaErrors with the codes and sentences of Kafka 4.4 (`LogConfig`, `DynamicBrokerConfig`, `GroupConfig`,
`ClientMetricsConfigs`); they differ by resource: INVALID_CONFIG mostly, INVALID_REQUEST for brokers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ottla.config import definitions
from ottla.config.checks import InvalidValue, Value
from ottla.config.setting import Mode
from ottla.errors import ErrorCode, KafkaError

TOPIC_NAME_LENGTH_MAX = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic_name(name: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION (Kafka's `Topic.validate`)."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    elif not _TOPIC_NAME.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {reason}")


def validate_topic_config(name: str, value: str) -> Value:
    """The typed value of one topic setting. Raises KafkaError INVALID_CONFIG."""
    setting = definitions.TOPIC.get(name)
    if setting is None:
        raise _invalid(f"Unknown topic config name: {name}")
    try:
        return setting.parse(value)
    except InvalidValue as error:
        raise _invalid(str(error)) from error


def validate_topic_configs(configs: Mapping[str, str], defaults: Mapping[str, str | None] | None = None) -> None:
    """Check all overrides of a topic, alone and together with the node's `topic_defaults()` for the rest.

    Raises KafkaError INVALID_CONFIG.
    """
    for name in configs:
        if name not in definitions.TOPIC:
            raise _invalid(f"Unknown topic config name: {name}")
    for name, value in configs.items():
        validate_topic_config(name, value)
    effective = {
        **{name: setting.default for name, setting in definitions.TOPIC.items()},
        **(defaults or {}),
        **configs,
    }
    shortest, longest = effective["min.compaction.lag.ms"], effective["max.compaction.lag.ms"]
    if int(shortest or 0) > int(longest or 0):
        raise _invalid(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        )
    if configs.get("remote.storage.enable", "").strip().lower() == "true":
        raise _invalid(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


_KEYSTORE = re.compile(r"ssl\.(key|keystore|truststore)\.(type|location|password|key|certificate\.chain|certificates)")
_LISTENER_SETTING = re.compile(r"listener\.name\.[^.]*\.(.*)")
_FIXED_AT_START = frozenset(
    {"listeners", "listener.security.protocol.map", "super.users", "allow.everyone.if.no.acl.found"}
)


def cordon_refusal(cordoned: Collection[str], log_dirs: Collection[str]) -> str | None:
    """Why a broker with these log directories cannot have such `cordoned.log.dirs`; None if it can (KIP-1066)."""
    if "*" in cordoned:
        return None if len(cordoned) == 1 else "When cordoned.log.dirs is set to *, it must not contain other values"
    missing = [each for each in cordoned if each not in log_dirs]
    if not missing:
        return None
    return (
        "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
        f"Missing entries : {', '.join(missing)}"
    )


def validate_broker_configs(
    configs: Mapping[str, str], *, per_broker: bool, log_dirs: Collection[str] | None = None
) -> None:
    """Check dynamic settings of one broker, or of all (`per_broker` false). Names outside the table are let through.

    With `log_dirs` the settings are those of the broker that has these log directories.

    Raises KafkaError INVALID_REQUEST.
    """
    settings = {name: definitions.BROKER[name] for name in configs if name in definitions.BROKER}
    _refuse(
        "Cannot update these configs dynamically", [n for n, each in settings.items() if each.mode is Mode.READ_ONLY]
    )
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        [name for name in configs if _KEYSTORE.fullmatch(name)],
    )
    throttles = {name: definitions.THROTTLES[name] for name in configs if name in definitions.THROTTLES}
    for name, setting in {**settings, **throttles}.items():
        try:
            value = setting.parse(configs[name])
        except InvalidValue as error:
            raise KafkaError(ErrorCode.invalid_request, str(error)) from error
        if name == "log.roll.ms" and isinstance(value, int) and value < 1:
            why = "requirement failed: log.roll.ms must be greater than or equal to 1"
            raise KafkaError(ErrorCode.invalid_request, why)
        if name == "log.cleaner.threads" and isinstance(value, int) and value < 1:
            raise KafkaError(ErrorCode.invalid_request, "Log cleaner threads should be at least 1")
        if name == "cordoned.log.dirs" and log_dirs is not None and isinstance(value, tuple):
            refusal = cordon_refusal(value, log_dirs)
            if refusal is not None:
                raise KafkaError(ErrorCode.invalid_request, f"requirement failed: {refusal}")
    if not per_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            [n for n in configs if _LISTENER_SETTING.fullmatch(n) or (n in settings and _is_per_broker(n))],
        )
    _refuse("Ottla reads these configs at start only; change the configuration file", _FIXED_AT_START & configs.keys())


def _is_per_broker(name: str) -> bool:
    return definitions.BROKER[name].mode is Mode.PER_BROKER


def _refuse(sentence: str, names: Collection[str]) -> None:
    if names:
        raise KafkaError(ErrorCode.invalid_request, f"{sentence}: [{', '.join(sorted(names))}]")


_BOUNDED = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.assignment.interval.ms",
    "streams.num.standby.replicas",
    "streams.task.offset.interval.ms",
    "streams.num.warmup.replicas",
)
"""Settings of a group that those of the broker bound, in the order of Kafka's checks."""


def validate_group_configs(configs: Mapping[str, str], config: Mapping[str, Any]) -> None:
    """Check all settings of a group against this node's bounds. Raises KafkaError INVALID_CONFIG."""
    for name in configs:
        if name not in definitions.GROUP:
            raise _invalid(f"Unknown group config name: {name}")
    _check_repeated_tags(configs.get("streams.rack.aware.assignment.tags", ""))
    given: dict[str, Any] = {}
    for name, text in configs.items():
        try:
            given[name] = definitions.GROUP[name].parse(text)
        except InvalidValue as error:
            raise _invalid(str(error)) from error
    for name in _BOUNDED:
        if name in given:
            _check_bounds(name, given[name], config)
    _check_task_assignor(configs.get("streams.assignor.name"), config)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if not given.keys() & {session, heartbeat}:
            continue
        session_ms, heartbeat_ms = (given.get(each, config[f"group.{each}"]) for each in (session, heartbeat))
        if session_ms <= heartbeat_ms:
            raise _invalid(f"{session} must be greater than {heartbeat}")
    if str(given.get("errors.deadletterqueue.topic.name", "")).startswith("__"):
        raise _invalid("errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'")


def _check_bounds(name: str, value: int, config: Mapping[str, Any]) -> None:
    from ottla.config.group_settings import BOUNDS  # few groups have any

    low, high = (None if each is None else config[each] for each in BOUNDS[name][1:])
    if (low is None or value >= low) and (high is None or value <= high):
        return
    if low is None:
        raise _invalid(f"{name} must be less than or equal to {high}")
    if high is None:
        raise _invalid(f"{name} must be greater than or equal to {low}")
    raise _invalid(f"{name} must be in the range {low} to {high} inclusive.")


def _check_repeated_tags(text: str) -> None:
    tags = [each.strip() for each in text.split(",")]
    if len({*tags}) < len(tags):
        raise _invalid("streams.rack.aware.assignment.tags must not contain duplicate tag keys.")


def _check_task_assignor(name: str | None, config: Mapping[str, Any]) -> None:
    from ottla.config.group_settings import task_assignors

    known = task_assignors(config)
    if name is not None and name not in known:
        raise _invalid(
            f"streams.assignor.name '{name}' is not a registered task assignor. Registered assignors are: "
            f"[{', '.join(known)}]."
        )


_SELECTORS = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
PUSH_INTERVAL_MS_MIN = 100
PUSH_INTERVAL_MS_MAX = 3_600_000
PATTERN_LENGTH_MAX = 4_096
"""Longest pattern that selects clients, as in `ottla.protocol.regular_expression`."""


def validate_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """Check the settings of a client metrics subscription (KIP-714).

    Raises KafkaError, INVALID_REQUEST or INVALID_CONFIG.
    """
    for name, text in configs.items():
        setting = definitions.CLIENT_METRICS.get(name)
        if setting is None:
            raise KafkaError(ErrorCode.invalid_request, f"Unknown client metrics configuration: {name}")
        try:
            value = setting.parse(text)
        except InvalidValue as error:
            raise _invalid(str(error)) from error
        if name == "interval.ms" and not PUSH_INTERVAL_MS_MIN <= int(text) <= PUSH_INTERVAL_MS_MAX:
            why = f"interval must be between {PUSH_INTERVAL_MS_MIN} and {PUSH_INTERVAL_MS_MAX} (1 hour)"
            raise KafkaError(ErrorCode.invalid_request, f"Invalid value {text} for interval.ms, {why}")
        if name == "match":
            assert isinstance(value, tuple)
            for pattern in value:
                _check_selector(pattern)


def _check_selector(pattern: str) -> None:
    """What an attribute of a client has to match, by RE2: the name of a client must not decide how long that takes."""
    import re2  # most nodes never have a subscription

    options = re2.Options()
    options.log_errors = False
    parts = pattern.rstrip("=").split("=")
    try:
        is_right = len(parts) == 2 and parts[0].strip() in _SELECTORS and len(pattern) <= PATTERN_LENGTH_MAX
        if is_right:
            re2.compile(parts[1].strip().encode(), options)
    except re2.error:
        is_right = False
    if not is_right:
        raise _invalid(f"Illegal client matching pattern: {pattern}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_config, message)
