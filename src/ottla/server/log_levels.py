"""Log levels of this process as settings of the resource BROKER_LOGGER (KIP-412), on Python's `logging`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ottla.controller.configs import Operation
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import LEVELS

ROOT = "root"


def alter_log_levels(node_id: int, resource: Mapping[str, Any], *, validate_only: bool) -> None:
    """Apply the changes of one resource, all or none. Raises KafkaError."""
    name = resource["resource_name"]
    for entry in resource["configs"]:
        if entry["value"] is None and entry["config_operation"] != Operation.DELETE:
            raise KafkaError(ErrorCode.invalid_request, f"Null value not supported for : {entry['name']}")
    if not name.isdigit():
        raise KafkaError(ErrorCode.invalid_request, f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise KafkaError(ErrorCode.invalid_request, f"Unexpected node id. Expected {node_id}, but received {name}")
    changes = [(_level(entry), _logger(entry["name"])) for entry in resource["configs"]]
    if not validate_only:
        for level, logger in changes:
            logger.setLevel(level)


def _level(entry: Mapping[str, Any]) -> int:
    operation, name, value = entry["config_operation"], entry["name"], entry["value"]
    known = name == ROOT or name in logging.root.manager.loggerDict
    if operation in (Operation.APPEND, Operation.SUBTRACT):
        verb = Operation(operation).name
        why = f"{verb} operation is not allowed for the BROKER_LOGGER resource"
        raise KafkaError(ErrorCode.invalid_request, why)
    if operation not in (Operation.SET, Operation.DELETE):
        raise KafkaError(ErrorCode.invalid_request, f"Unknown operations type {operation}")
    if not known:
        raise KafkaError(ErrorCode.invalid_config, f"Logger {name} does not exist!")
    if operation == Operation.DELETE:
        if name == ROOT:
            why = "Removing the log level of the root logger is not allowed"
            raise KafkaError(ErrorCode.invalid_request, why)
        return logging.NOTSET
    if value not in LEVELS:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}",
        )
    return LEVELS[value]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)
