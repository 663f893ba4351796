"""A schema as a request has it, and with what it is stored with besides: metadata and rules of the version before,
between a configuration's defaults and overrides (data contracts of Confluent's registry)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ottla.registry import contracts
from ottla.registry.records import AVRO, Reference, SchemaRecord, digest_of


@dataclass(frozen=True)
class Proposal:
    """A schema as a request has it, for a subject."""

    subject: str
    text: str
    type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int = -1
    """Given by who imports it; -1 otherwise."""
    version: int = 0
    """The same; 0 is the next one, -1 the same but noted in the metadata."""

    @property
    def digest(self) -> bytes:
        return digest_of(self.text, self.references, self.metadata, self.rule_set)

    @property
    def is_empty(self) -> bool:
        """Whether it has no schema: what is registered then is a contract, for the schema that is there."""
        return not self.text.strip()


def inherited(
    proposal: Proposal, previous: SchemaRecord | None, config: Mapping[str, Any], following: int | None = None
) -> Proposal:
    """The proposal with what it would be stored with as version `following`, if that is to be noted in it."""
    metadata, rule_set = proposal.metadata, proposal.rule_set
    if previous is not None:
        metadata = previous.metadata if metadata is None else metadata
        rule_set = previous.rule_set if rule_set is None else rule_set
        if proposal.is_empty:
            proposal = replace(proposal, text=previous.schema, type=previous.type, references=previous.references)
    metadata = _merged_metadata(config.get("defaultMetadata"), metadata, config.get("overrideMetadata"))
    rule_set = _merged_rules(config.get("defaultRuleSet"), rule_set, config.get("overrideRuleSet"))
    says_version = contracts.CONFLUENT_VERSION in ((metadata or {}).get("properties") or {})
    if following is not None and (proposal.version != 0 or says_version):
        metadata = contracts.with_version(metadata, following)
    return replace(proposal, metadata=metadata, rule_set=rule_set)


def _merged_metadata(*layers: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Later ones win, member by member."""
    given = [layer for layer in layers if layer is not None]
    if not given:
        return None
    merged: dict[str, Any] = {
        name: {key: value for layer in given for key, value in layer.get(name, {}).items()}
        for name in ("tags", "properties")
    }
    return contracts.metadata_of(
        {**merged, "sensitive": [each for layer in given for each in layer.get("sensitive", ())]}
    )


def _merged_rules(*layers: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A rule of a later layer replaces that of its name, and stands behind those that stay."""
    given = [layer for layer in layers if layer is not None]
    if not given:
        return None
    merged = {name: value for layer in given for name, value in layer.items()}  # for enableAt
    for kind in contracts.RULE_KINDS:
        rules: dict[str, Any] = {}
        for layer in given:
            for rule in layer.get(kind, ()):
                rules.pop(rule["name"], None)
                rules[rule["name"]] = rule
        if rules:
            merged[kind] = list(rules.values())
    return merged
