"""Metadata and rules of a new version: its own, or the previous one's, between a configuration's defaults and overrides
(data contracts of Confluent's registry)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.registry.catalog import Proposal
from ottla.registry.records import SchemaRecord

CONFLUENT_VERSION: Final = "confluent:version"
"""A property of metadata that holds the version's own number."""
_RULES: Final = ("migrationRules", "domainRules", "encodingRules")


def inherited(proposal: Proposal, previous: SchemaRecord | None, config: Mapping[str, Any], following: int) -> Proposal:
    """The proposal with what it would be stored with as version `following`."""
    metadata = proposal.metadata
    rule_set = proposal.rule_set
    if previous is not None:
        metadata = previous.metadata if metadata is None else metadata
        rule_set = previous.rule_set if rule_set is None else rule_set
    metadata = _merged_metadata(config.get("defaultMetadata"), metadata, config.get("overrideMetadata"))
    rule_set = _merged_rules(config.get("defaultRuleSet"), rule_set, config.get("overrideRuleSet"))
    properties = (metadata or {}).get("properties") or {}
    if proposal.version != 0 or CONFLUENT_VERSION in properties:
        metadata = {**(metadata or {}), "properties": {**properties, CONFLUENT_VERSION: str(following)}}
    return replace(proposal, metadata=metadata, rule_set=rule_set)


def _merged_metadata(*layers: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Later ones win, member by member."""
    given = [layer for layer in layers if layer is not None]
    if not given:
        return None
    merged: dict[str, Any] = {}
    for name in ("tags", "properties"):
        if any(layer.get(name) for layer in given):
            merged[name] = {key: value for layer in given for key, value in (layer.get(name) or {}).items()}
    if any(layer.get("sensitive") for layer in given):
        merged["sensitive"] = sorted({each for layer in given for each in layer.get("sensitive") or ()})
    return merged


def _merged_rules(*layers: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A rule of a later layer replaces that of its name, and stands behind those that stay."""
    given = [layer for layer in layers if layer is not None]
    if not given:
        return None
    if len(given) == 1:
        return dict(given[0])
    merged: dict[str, Any] = {}
    for kind in _RULES:
        rules: dict[str, Any] = {}
        for layer in given:
            for rule in layer.get(kind) or ():
                rules.pop(str(rule.get("name")), None)
                rules[str(rule.get("name"))] = rule
        if rules:
            merged[kind] = list(rules.values())
    return merged
