"""AlterClientQuotas, decided as by Kafka's `ClientQuotaControlManager`; the enforcement is that of the brokers."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.controller.decision import ITEMS_PER_STEP, Decision, Steps
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.protocol.schemas.records import ClientQuotaRecord, QuotaEntityData

if TYPE_CHECKING:
    from ottla.protocol.schemas import sent

USER, CLIENT_ID, IP = "user", "client-id", "ip"

ROWS_PER_STEP = 500
"""Rows of the answer between two yields."""

_INTEGRAL = {"producer_byte_rate": (1 << 63) - 1, "consumer_byte_rate": (1 << 63) - 1}
_USER_KEYS: Mapping[str, int | None] = {**_INTEGRAL, "request_percentage": None, "controller_mutation_rate": None}
_IP_KEYS: Mapping[str, int | None] = {"connection_creation_rate": (1 << 31) - 1}
"""Maximum of each quota that is a whole number."""

_TYPE_NAMES = {(1 << 31) - 1: "an INT", (1 << 63) - 1: "a LONG"}

Names = dict[str, "str | None"]
_Order = tuple[tuple[str, "str | None"], ...]


def alter_client_quotas(
    image: MetadataImage, request: sent.AlterClientQuotasRequest
) -> Steps[sent.AlterClientQuotasResponse]:
    """One row for each entity. What is refused of one does not keep the others from being changed; an entity that comes
    twice is changed as its first entry says, and refused nevertheless."""
    rows: dict[_Order, tuple[Names, KafkaError | None]] = {}
    records: list[ClientQuotaRecord] = []
    for index, entry in enumerate(request["entries"], start=1):
        if index % ITEMS_PER_STEP == 0:
            yield
        given = {each["entity_type"]: each["entity_name"] for each in entry["entity"]}
        names: Names = {kind: given.pop(kind) for kind in (CLIENT_ID, USER, IP) if kind in given}
        names.update(given)  # the order of Java's maps, which clients see
        entity = tuple(sorted(names.items(), key=lambda item: item[0]))
        keys = [op["key"] for op in entry["ops"]]
        if entity in rows or len(set(keys)) < len(keys):
            why = f"Ignoring duplicate entity ClientQuotaEntity(entries={_shown(names)})"
            rows[entity] = names, KafkaError(ErrorCode.invalid_request, why)
            continue
        try:
            records += _altered(image, entity, names, entry["ops"])
        except KafkaError as error:
            rows[entity] = names, error.with_traceback(None)  # which would keep the request
        else:
            rows[entity] = names, None
    entries: list[sent.AlterClientQuotasResponseEntryData] = []
    for names, refusal in rows.values():
        entries.append(_row(names, refusal))
        if len(entries) % ROWS_PER_STEP == 0:
            yield
    return Decision({"entries": entries}, () if request.get("validate_only") else records)


def _row(names: Names, error: KafkaError | None) -> sent.AlterClientQuotasResponseEntryData:
    return {
        "error_code": ErrorCode.none if error is None else error.code,
        "error_message": None if error is None else error.message,
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in names.items()],
    }


def _altered(image: MetadataImage, entity: _Order, names: Names, ops: Iterable[sent.OpData]) -> list[ClientQuotaRecord]:
    """The records of one entity. Raises KafkaError."""
    allowed = _allowed_keys(names)
    present = image.client_quotas.get(entity, {})
    parts = tuple(QuotaEntityData(kind, name) for kind, name in entity)
    records = []
    for op in ops:
        key, value = op["key"], op["value"]
        if op["remove"]:
            if key in present:
                records.append(ClientQuotaRecord(parts, key, 0.0, True))
            continue
        _check_value(allowed, key, value)
        if present.get(key) != value:
            records.append(ClientQuotaRecord(parts, key, value, False))
    return records


def _allowed_keys(names: Names) -> Mapping[str, int | None]:
    if not names:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in names:
        return _USER_KEYS
    if len(names) > 1:
        raise _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    if not is_address(names[IP]):
        raise _invalid(f"{names[IP]} is not a valid IP or resolvable host.")
    return _IP_KEYS


def is_address(text: str | None) -> bool:
    """Whether an ip quota can be for it. Kafka's controller also takes the names of hosts, which it looks up."""
    if text is None:
        return True
    try:
        ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _check_value(allowed: Mapping[str, int | None], key: str, value: float) -> None:
    if key not in allowed:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0.0:  # nor NaN, which Kafka lets through
        raise _invalid(f"Quota {key} must be greater than 0")
    most = allowed[key]
    if most is None:
        return
    if value > float(most):
        raise _invalid(f"Proposed value for {key} is too large for {_TYPE_NAMES[most]}.")
    if value % 1.0 > 1e-6:
        raise _invalid(f"{key} cannot be a fractional value.")


def _shown(names: Names) -> str:
    """The names as Java prints the map."""
    return "{" + ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in names.items()) + "}"


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)
