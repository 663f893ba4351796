"""The feature levels that a directory is formatted with, by the rules of `kafka-storage format`."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.errors import OttlaError
from ottla.metadata.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_4_4,
    METADATA_VERSIONS,
    SUPPORTED,
    UNSTABLE_METADATA_VERSIONS,
    default_levels,
    metadata_version_name,
    metadata_version_of,
    required_metadata_version,
    supports_scram,
)


def first_levels(
    release: str | None = None,
    chosen: Mapping[str, int] | None = None,
    *,
    is_dynamic: bool = False,
    has_users: bool = False,
) -> dict[str, int]:
    """Feature to level, in the order of the records: the levels of `release`, by default this software's newest, with
    those that are `chosen` over them. What is off has no record.

    `is_dynamic`: the quorum's voters can change (kraft.version 1), which is no record among these. `has_users`: the
    cluster begins with users of SCRAM. Raises OttlaError for the first rule that is broken, in Kafka's order.
    """
    asked = dict(chosen or {})
    level = _metadata_version(release, asked)
    for name in sorted(asked):
        if name not in SUPPORTED:
            known = ", ".join(sorted(SUPPORTED))
            raise OttlaError(f"--feature: there is no feature {name!r}; there are {known}")
    _check_kraft_version(asked.get(KRAFT_VERSION), is_dynamic=is_dynamic)
    levels = {**default_levels(level), **asked, METADATA_VERSION: level}
    for name in sorted(levels):
        if name != METADATA_VERSION:
            _check(name, levels[name], level)
    if has_users and not supports_scram(levels):
        since = next(each for each in METADATA_VERSIONS if supports_scram({METADATA_VERSION: each.level}))
        raise OttlaError(
            f"--add-scram needs metadata.version {since.name} or later, and the directory gets "
            f"{metadata_version_name(level)}"
        )
    return {name: each for name, each in levels.items() if each and name != KRAFT_VERSION}


def _metadata_version(release: str | None, asked: Mapping[str, int]) -> int:
    first, last = METADATA_VERSIONS[0], METADATA_VERSIONS[-1]
    if release is not None:
        found = metadata_version_of(release)
        if found is None:
            raise OttlaError(f"--release-version: {release!r} is no release from {first.name} to {last.name}")
        if METADATA_VERSION in asked:
            raise OttlaError("give either --release-version or --feature metadata.version=..., not both")
        return found
    level = asked.get(METADATA_VERSION, METADATA_VERSION_4_4)
    unstable = next((each.name for each in UNSTABLE_METADATA_VERSIONS if each.level == level), None)
    if unstable is not None:
        raise OttlaError(f"--feature: metadata.version {level} is {unstable}, which is not for production yet")
    if not first.level <= level <= last.level:
        known = f"{first.level} ({first.name}) to {last.level} ({last.name})"
        raise OttlaError(f"--feature: metadata.version can be {known}, not {level}")
    return level


def _check_kraft_version(level: int | None, *, is_dynamic: bool) -> None:
    if level == 0 and is_dynamic:
        raise OttlaError(
            "--feature: kraft.version cannot be 0 with --standalone, --initial-controllers or "
            "--no-initial-controllers: their voters can change; leave it out"
        )
    if level and not is_dynamic:
        raise OttlaError(
            f"--feature: kraft.version can be {level} only with --standalone, --initial-controllers or "
            "--no-initial-controllers, and without controller.quorum.voters"
        )


def _check(name: str, level: int, metadata_version: int) -> None:
    low, high = SUPPORTED[name]
    if not low <= level <= high:
        raise OttlaError(f"--feature: {name} can be {low} to {high}, not {level}")
    needed = required_metadata_version(name, level)
    if metadata_version < needed:
        raise OttlaError(
            f"--feature: {name} cannot be {level}: it needs metadata.version {needed} "
            f"({metadata_version_name(needed)}), and the directory gets {metadata_version} "
            f"({metadata_version_name(metadata_version)})"
        )
