"""The REST API, an operation each: from a request to an answer's JSON. `ROUTES` says which answers what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.registry import api_errors, requests, subjects
from ottla.registry.api_errors import ApiError
from ottla.registry.proposals import Proposal
from ottla.registry.records import SCHEMA_TYPES, SchemaRecord
from ottla.registry.registrar import MODES
from ottla.registry.requests import Call
from ottla.registry.rights import ALL, denied, of_listed, of_references, of_schema, of_subject
from ottla.registry.schema_types import compatibility
from ottla.registry.service import Service
from ottla.registry.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT
from ottla.security.acls import Operation
from ottla.server.security.permissions import Needs, Open, cluster

Handler = Callable[[Service, Call], Any]

CONFIG_MEMBERS: Final = (
    "alias", "aliasForDeks", "normalize", "validateFields", "validateNewSchemas", "validateRules", "compatibility",
    "compatibilityPolicy", "compatibilityGroup", "defaultMetadata", "overrideMetadata", "defaultRuleSet",
    "overrideRuleSet",
)  # fmt: skip
_CONFIG_TYPES: Final = {
    "normalize": bool, "validateFields": bool, "validateNewSchemas": bool, "validateRules": bool,
    "defaultMetadata": dict, "overrideMetadata": dict, "defaultRuleSet": dict, "overrideRuleSet": dict,
}  # fmt: skip


class Text(NamedTuple):
    """An answer that is a schema's text, not a JSON string with it."""

    text: str


def _described(record: SchemaRecord, text: str | None = None) -> dict[str, Any]:
    """The description of a schema, common to all requests."""
    found: dict[str, Any] = {"guid": record.guid, "schemaType": record.type}
    if record.references:
        found["references"] = [each.as_json() for each in record.references]
    if record.metadata is not None:
        found["metadata"] = record.metadata
    if record.rule_set is not None:
        found["ruleSet"] = record.rule_set
    found["schema"] = record.schema if text is None else text
    if record.deleted:
        found["deleted"] = True
    return found


def _version(record: SchemaRecord, text: str | None = None) -> dict[str, Any]:
    named = {"subject": record.subject, "version": record.version, "id": record.id}
    return {**named, **_described(record, text), "ts": record.timestamp}


def _formatted(service: Service, call: Call, record: SchemaRecord) -> str | None:
    name = call.text("format").strip()
    return service.catalog.parsed_record(record).formatted(name) if name else None


def _proposal(service: Service, call: Call) -> Proposal:
    """The schema that was sent. Raises ApiError, also where it refers to what its sender may not see."""
    proposal = call.proposal()
    for each in proposal.references if call.rights is not ALL else ():
        subject = subjects.qualify(proposal.subject, each.subject)
        call.rights.require(Operation.DESCRIBE, subject)
        for deleted in (False, True):
            try:
                found = service.catalog.version(subject, each.version, deleted=deleted)
            except ApiError:
                continue  # what is not there is refused where it is needed
            _seen(call, found)
    return proposal


def _seen(call: Call, record: SchemaRecord) -> SchemaRecord:
    """The record, which may be of another subject than was asked for: of the one that an alias names, or of the same
    name in another context. Raises ApiError where the caller may not see that one."""
    call.rights.require(Operation.DESCRIBE, record.subject)
    return record


# Subjects


def list_subjects(service: Service, call: Call) -> Any:
    prefix = call.text("subjectPrefix", subjects.WILDCARD)
    deleted_only = call.flag("deletedOnly", "deleted_only")
    found = []
    with service.state.lock:
        for subject in service.state.subjects():
            if not _matches(subject, prefix) or not call.rights.may(Operation.DESCRIBE, subject):
                continue
            versions = service.state.versions(subject, deleted=True)
            is_deleted = all(each.deleted for each in versions)
            if is_deleted if deleted_only else (call.flag("deleted") or not is_deleted):
                found.append(subject)
    return call.page(found)


def _matches(subject: str, prefix: str) -> bool:
    if prefix.startswith(subjects.WILDCARD):
        return subjects.parse(subject).name.startswith(prefix.removeprefix(subjects.WILDCARD))
    wanted, found = subjects.parse(prefix), subjects.parse(subject)
    return wanted.context == found.context and found.name.startswith(wanted.name)


def lookup(service: Service, call: Call) -> Any:
    proposal = _proposal(service, call)
    normalize = service.normalizes(call.subject, call)
    record = _seen(call, service.catalog.lookup(proposal, normalize=normalize, deleted=call.flag("deleted")))
    return _version(record, _formatted(service, call, record))


def delete_subject(service: Service, call: Call) -> Any:
    return service.registrar.delete_subject(call.subject, permanent=call.flag("permanent"))


def latest_with_metadata(service: Service, call: Call) -> Any:
    wanted = dict(zip(call.query.get("key", ()), call.query.get("value", ()), strict=False))
    deleted = call.flag("deleted")
    for record in reversed(service.state.versions(call.subject, deleted=deleted)):
        properties = (record.metadata or {}).get("properties") or {}
        if record.metadata is not None and wanted.items() <= properties.items():
            return _version(record, _formatted(service, call, record))
    if not service.catalog.has_subject(call.subject, deleted=deleted):
        raise api_errors.subject_not_found(call.subject)
    raise api_errors.schema_not_found()


def list_versions(service: Service, call: Call) -> Any:
    subject, deleted_only = call.subject, call.flag("deletedOnly", "deleted_only")
    deleted = call.flag("deleted") or deleted_only
    if not service.catalog.has_subject(subject, deleted=deleted):
        raise api_errors.subject_not_found(subject)
    found = service.state.versions(subject, deleted=deleted or call.flag("deletedAsNegative"))
    if call.flag("deletedAsNegative"):
        return call.page([-each.version if each.deleted else each.version for each in found])
    return call.page([each.version for each in found if each.deleted or not deleted_only])


def get_version(service: Service, call: Call) -> Any:
    record = _seen(call, service.catalog.version(call.subject, call.version, deleted=call.flag("deleted")))
    return _version(record, _formatted(service, call, record))


def get_version_text(service: Service, call: Call) -> Any:
    record = _seen(call, service.catalog.version(call.subject, call.version, deleted=call.flag("deleted")))
    return Text(_formatted(service, call, record) or record.schema)


def referenced_by(service: Service, call: Call) -> Any:
    record = _seen(call, service.catalog.version(call.subject, call.version, deleted=True))
    found = service.state.referrers(record.subject, record.version, deleted=call.flag("deleted"))
    return call.page(sorted({each.id for each in found}))


def register(service: Service, call: Call) -> Any:
    if not subjects.is_valid(call.parameters["subject"]):
        raise api_errors.invalid_subject(call.parameters["subject"])
    proposal = _proposal(service, call)
    record = service.registrar.register(proposal, normalize=service.normalizes(call.subject, call))
    return _registered(service, call, proposal, record)


def _registered(service: Service, call: Call, proposal: Proposal, record: SchemaRecord) -> Any:
    """The schema itself is said only where it is another one than was sent: clients keep what they are told."""
    answer = {"id": record.id, "version": record.version, "guid": record.guid}
    text = _formatted(service, call, record)
    if text is None and (proposal.metadata, proposal.rule_set) == (record.metadata, record.rule_set):
        return answer
    return {**answer, **_described(record, text)}


def already_registered(service: Service, call: Call) -> Any:
    """The answer of any instance to a request to register an existing schema, without a write; else None."""
    proposal = _proposal(service, call)
    if not subjects.is_valid(call.parameters["subject"]):
        return None
    record = service.registrar.registered(proposal, normalize=service.normalizes(call.subject, call))
    return None if record is None else _registered(service, call, proposal, record)


def delete_version(service: Service, call: Call) -> Any:
    return service.registrar.delete_version(call.subject, call.version, permanent=call.flag("permanent"))


# Compatibility


def compatible_with_version(service: Service, call: Call) -> Any:
    version = call.version
    with service.state.lock:
        record = service.state.version(call.subject, version)
    if record is None and version != -1:
        raise api_errors.version_not_found(version)
    return _compatibility(service, call, [] if record is None else [record])


def compatible(service: Service, call: Call) -> Any:
    return _compatibility(service, call, service.state.versions(call.subject))


def _compatibility(service: Service, call: Call, earlier: list[SchemaRecord]) -> Any:
    proposal = _proposal(service, call)
    config = service.state.config_in_scope(call.subject)
    is_verbose = call.flag("verbose")
    try:
        normalize = service.normalizes(call.subject, call)
        messages = service.catalog.problems(proposal, earlier, normalize=normalize, config=config)
    except ApiError as error:
        if error.code != 42201 or not is_verbose:
            raise
        messages = [error.message]
    return {"is_compatible": not messages, **({"messages": messages} if is_verbose else {})}


# Schemas by id


def list_types(service: Service, call: Call) -> Any:
    return list(SCHEMA_TYPES)


def list_schemas(service: Service, call: Call) -> Any:
    prefix = call.text("subjectPrefix", subjects.WILDCARD) or subjects.WILDCARD
    deleted, latest_only = call.flag("deleted"), call.flag("latestOnly")
    found: list[SchemaRecord] = []
    with service.state.lock:
        for subject in service.state.subjects():
            if _matches(subject, prefix) and call.rights.may(Operation.DESCRIBE, subject):
                versions = service.state.versions(subject, deleted=deleted)
                found += versions[-1:] if latest_only else versions
    return [_version(each) for each in call.page(found)]


def _visible(call: Call, records: list[SchemaRecord], what: str) -> list[SchemaRecord]:
    """The records of subjects that the caller may see. Raises ApiError where there is none of them."""
    found = [each for each in records if call.rights.may(Operation.DESCRIBE, each.subject)]
    if records and not found:
        raise denied(call.rights.principal, Operation.DESCRIBE, f"the topic of a subject that has {what}")
    return found


def _with_id(service: Service, call: Call, subject: str) -> list[SchemaRecord]:
    return _visible(call, service.catalog.by_id(call.id, subject), f"schema {call.id}")


def by_id(service: Service, call: Call) -> Any:
    subject = subjects.normalize(call.text("subject"))
    record = _with_id(service, call, subject)[0]
    text = _formatted(service, call, record)
    answer = {"subject": record.subject, "version": record.version, **_described(record, text)}
    answer.pop("deleted", None)
    if call.flag("fetchMaxId"):
        answer["maxId"] = service.state.last_id(subjects.parse(record.subject).context)
    return answer


def text_by_id(service: Service, call: Call) -> Any:
    record = _with_id(service, call, subjects.normalize(call.text("subject")))[0]
    return Text(_formatted(service, call, record) or record.schema)


def _using(service: Service, call: Call) -> list[SchemaRecord]:
    subject = subjects.normalize(call.text("subject"))
    found = _with_id(service, call, subject)
    return [
        each
        for each in sorted(found, key=lambda each: (each.subject, each.version))
        if (call.flag("deleted") or not each.deleted)
        and (not subjects.parse(subject).name or subjects.parse(each.subject).name == subjects.parse(subject).name)
    ]


def subjects_by_id(service: Service, call: Call) -> Any:
    return call.page(list(dict.fromkeys(each.subject for each in _using(service, call))))


def versions_by_id(service: Service, call: Call) -> Any:
    return call.page([{"subject": each.subject, "version": each.version} for each in _using(service, call)])


def _with_guid(service: Service, call: Call) -> list[SchemaRecord]:
    with service.state.lock:
        found = service.state.with_guid(call.parameters["guid"])
    if not found:
        raise api_errors.schema_not_found(call.parameters["guid"])
    return _visible(call, found, "this schema")


def by_guid(service: Service, call: Call) -> Any:
    record = _with_guid(service, call)[0]
    return _described(record, _formatted(service, call, record))


def ids_by_guid(service: Service, call: Call) -> Any:
    found = {(subjects.parse(each.subject).context, each.id) for each in _with_guid(service, call)}
    return [{"context": context, "id": schema_id} for context, schema_id in sorted(found)]


# Configuration and modes


def _scope(call: Call) -> str | None:
    """The subject or context of the path; None for the default context, where the global settings are kept."""
    if "subject" not in call.parameters:
        return None
    found = subjects.parse(call.parameters["subject"])
    return None if found == (DEFAULT_CONTEXT, "") else found.text


def _checked_scope(call: Call) -> str | None:
    scope = _scope(call)
    if scope is not None and not subjects.is_valid(scope, or_context=True):
        raise api_errors.invalid_subject(call.parameters["subject"])
    return scope


def _is_top(scope: str | None) -> bool:
    return scope is None or subjects.parse(scope).context == GLOBAL_CONTEXT


def get_config(service: Service, call: Call) -> Any:
    scope = _scope(call)
    with service.state.lock:
        if call.flag("defaultToGlobal"):
            return service.state.config_in_scope(scope)
        config = service.state.configs.get(scope)
        if config is None and not _is_top(scope):
            raise api_errors.no_subject_compatibility(str(scope))
    config = {"compatibilityLevel": service.default_level, **(config or {})}
    return {name: value for name, value in config.items() if name != "subject"}


def set_config(service: Service, call: Call) -> Any:
    body = call.body(CONFIG_MEMBERS)
    changes: dict[str, Any] = {name: value for name, value in body.items() if name in CONFIG_MEMBERS}
    for name, value in changes.items():
        if value is not None and not isinstance(value, _CONFIG_TYPES.get(name, str)):
            raise ApiError(422, f"{name} is not of the right type")
    if "compatibility" in changes:
        level = changes.pop("compatibility")
        if level is not None and level.upper() not in compatibility.LEVELS:
            raise api_errors.invalid_compatibility()
        changes["compatibilityLevel"] = None if level is None else level.upper()
    for name in changes:
        if name.endswith("Metadata"):
            changes[name] = requests.metadata_of(changes[name])
        elif name.endswith("RuleSet"):
            changes[name] = requests.rule_set_of(changes[name])
    config = service.registrar.set_config(_checked_scope(call), changes)
    return {"compatibility" if name == "compatibilityLevel" else name: value for name, value in config.items()}


def delete_config(service: Service, call: Call) -> Any:
    config = service.registrar.delete_config(_scope(call))
    return {"compatibilityLevel": service.default_level, **config}


def get_mode(service: Service, call: Call) -> Any:
    scope = _scope(call)
    if call.flag("defaultToGlobal"):
        return {"mode": service.state.mode_in_scope(scope)}
    mode = service.state.modes.get(scope)
    if mode is None and not _is_top(scope):
        raise api_errors.no_subject_mode(str(scope))
    return {"mode": mode or service.state.mode_in_scope(None)}


def set_mode(service: Service, call: Call) -> Any:
    mode = call.body(("mode",)).get("mode")
    if mode is not None and (not isinstance(mode, str) or mode.upper() not in MODES):
        raise api_errors.invalid_mode()
    mode = None if mode is None else mode.upper()
    service.registrar.set_mode(_checked_scope(call), mode, force=call.flag("force"))
    return {} if mode is None else {"mode": mode}


def delete_mode(service: Service, call: Call) -> Any:
    mode = service.registrar.delete_mode(_scope(call), recursive=call.flag("recursive"))
    return {"mode": mode or service.state.mode_in_scope(None)}


# The registry itself


def root(service: Service, call: Call) -> Any:
    return {}


def list_contexts(service: Service, call: Call) -> Any:
    with service.state.lock:
        found = service.state.contexts()
        if call.rights is not ALL:
            visible = filter(lambda each: call.rights.may(Operation.DESCRIBE, each), service.state.subjects())
            seen = {subjects.parse(each).context for each in visible}
            found = [each for each in found if each in seen]
    prefix = call.text("contextPrefix")
    return call.page([each for each in found if each.startswith(prefix)])


def delete_context(service: Service, call: Call) -> Any:
    name = call.parameters["context"].strip(":")
    service.registrar.delete_context(name if name.startswith(".") else f".{name}")
    return None


def cluster_id(service: Service, call: Call) -> Any:
    clusters = {"kafka-cluster": service.kafka_cluster_id, "schema-registry-cluster": service.group}
    return {"scope": {"path": [], "clusters": clusters}, "id": ""}


def server_version(service: Service, call: Call) -> Any:
    return {"version": service.version, "commitId": ""}


class Route(NamedTuple):
    """A request and what it needs."""

    method: str
    path: str
    handler: Handler
    needs: Needs


_HOLDS_NOTHING: Final = Open("clients ask it to see whether the registry is there; it tells nothing of the schemas")
_SEE: Final = (of_subject(Operation.DESCRIBE),)
_COMPARE: Final = (of_subject(Operation.DESCRIBE), of_references(Operation.DESCRIBE))
_REGISTER: Final = (of_subject(Operation.WRITE), of_references(Operation.DESCRIBE))
_DELETE: Final = (of_subject(Operation.DELETE),)
_SEE_SETTINGS: Final = (of_subject(Operation.DESCRIBE_CONFIGS),)
_SET: Final = (of_subject(Operation.ALTER_CONFIGS),)
_SEE_ALL_SETTINGS: Final = (cluster(Operation.DESCRIBE_CONFIGS),)
_SET_ALL: Final = (cluster(Operation.ALTER_CONFIGS),)
_LISTED: Final = (of_listed(Operation.DESCRIBE),)
_BY_ID: Final = (of_schema(Operation.DESCRIBE),)

ROUTES: Final[tuple[Route, ...]] = tuple(
    Route(*each)
    for each in (
        ("GET", "/", root, _HOLDS_NOTHING),
        ("POST", "/", root, _HOLDS_NOTHING),
        ("GET", "/subjects", list_subjects, _LISTED),
        ("POST", "/subjects/{subject}", lookup, _COMPARE),
        ("DELETE", "/subjects/{subject}", delete_subject, _DELETE),
        ("GET", "/subjects/{subject}/metadata", latest_with_metadata, _SEE),
        ("GET", "/subjects/{subject}/versions", list_versions, _SEE),
        ("POST", "/subjects/{subject}/versions", register, _REGISTER),
        ("GET", "/subjects/{subject}/versions/{version}", get_version, _SEE),
        ("DELETE", "/subjects/{subject}/versions/{version}", delete_version, _DELETE),
        ("GET", "/subjects/{subject}/versions/{version}/schema", get_version_text, _SEE),
        ("GET", "/subjects/{subject}/versions/{version}/referencedby", referenced_by, _SEE),
        ("POST", "/compatibility/subjects/{subject}/versions", compatible, _COMPARE),
        ("POST", "/compatibility/subjects/{subject}/versions/{version}", compatible_with_version, _COMPARE),
        ("GET", "/schemas", list_schemas, _LISTED),
        ("GET", "/schemas/types", list_types, _HOLDS_NOTHING),
        ("GET", "/schemas/ids/{id}", by_id, _BY_ID),
        ("GET", "/schemas/ids/{id}/schema", text_by_id, _BY_ID),
        ("GET", "/schemas/ids/{id}/subjects", subjects_by_id, _BY_ID),
        ("GET", "/schemas/ids/{id}/versions", versions_by_id, _BY_ID),
        ("GET", "/schemas/guids/{guid}", by_guid, _BY_ID),
        ("GET", "/schemas/guids/{guid}/ids", ids_by_guid, _BY_ID),
        ("GET", "/config", get_config, _SEE_ALL_SETTINGS),
        ("PUT", "/config", set_config, _SET_ALL),
        ("DELETE", "/config", delete_config, _SET_ALL),
        ("GET", "/config/{subject}", get_config, _SEE_SETTINGS),
        ("PUT", "/config/{subject}", set_config, _SET),
        ("DELETE", "/config/{subject}", delete_config, _SET),
        ("GET", "/mode", get_mode, _SEE_ALL_SETTINGS),
        ("PUT", "/mode", set_mode, _SET_ALL),
        ("DELETE", "/mode", delete_mode, _SET_ALL),
        ("GET", "/mode/{subject}", get_mode, _SEE_SETTINGS),
        ("PUT", "/mode/{subject}", set_mode, _SET),
        ("DELETE", "/mode/{subject}", delete_mode, _SET),
        ("GET", "/contexts", list_contexts, _LISTED),
        ("DELETE", "/contexts/{context}", delete_context, (cluster(Operation.ALTER),)),
        ("GET", "/v1/metadata/id", cluster_id, (cluster(Operation.DESCRIBE),)),
        ("GET", "/v1/metadata/version", server_version, (cluster(Operation.DESCRIBE),)),
    )
)

WRITES: Final = frozenset(
    {register, delete_subject, delete_version, set_config, delete_config, set_mode, delete_mode, delete_context}
)
"""Requests that only the leader handles."""
SLOW: Final = WRITES | {lookup, compatible, compatible_with_version}
"""Requests not handled on the event loop: they parse schemas or wait for the log. So do requests for another format."""
