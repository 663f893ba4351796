"""What a mirror would do at the destination with its next step, and what it leaves, with why. Nothing is changed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ottla.mirror.carrying import INTERNAL, Change
from ottla.mirror.mirror import Mirror


def plan(mirror: Mirror) -> list[Change]:
    """Topics with their settings, groups, ACLs, quotas, settings of brokers, users. Raises what `Mirror` raises."""
    mirror.control.load()
    chosen = mirror.chosen()
    return [*_topics(mirror, chosen), *_groups(mirror, set(chosen)), *mirror.rest(chosen)]


def _topics(mirror: Mirror, chosen: dict[str, int]) -> Iterator[Change]:
    route, roles = mirror.route, mirror.control.roles
    there = mirror.destination.topics()
    here = mirror.source.topics()
    settings = mirror.source.configs(list(chosen))
    known = mirror.destination.configs([route.prefix + each for each in chosen if route.prefix + each in there])
    for topic in sorted(here):
        name = route.prefix + topic
        if topic not in chosen:
            if not topic.startswith(INTERNAL):
                yield Change("topic", topic, "leave", why=_why_left(mirror, topic))
            continue
        wanted = {key: value for key, value in settings[topic].items() if not route.leaves(key)}
        left = sorted(key for key in settings[topic] if route.leaves(key))
        why = f"stays the destination's own: {', '.join(left)}" if left else ""
        if name not in there:
            yield Change("topic", name, "create", {"partitions": chosen[topic], **wanted}, why)
            continue
        if name not in roles:
            ends = mirror.destination.ends(((name, number) for number in range(there[name])), committed=False)
            if any(ends.values()):
                yield Change("topic", name, "refuse", why="it has records of its own at the destination")
                continue
        if there[name] > chosen[topic]:
            yield Change("topic", name, "refuse", why=f"it has {there[name]} partitions there, {chosen[topic]} here")
            continue
        changed: dict[str, object] = dict(mirror.config_changes(known[name], wanted))
        if there[name] < chosen[topic]:
            changed["partitions"] = chosen[topic]
        if changed:
            yield Change("topic", name, "alter", changed, why)


def _why_left(mirror: Mirror, topic: str) -> str:
    route = mirror.route
    if not re.fullmatch(route.topics, topic):
        return "it does not match --topics"
    if topic.startswith(f"{route.destination}."):
        return f"it is a mirror of {route.destination}'s"
    if mirror.control.roles.get(route.prefix + topic) == "owned":
        return "a failover has given it to the destination"
    return "it is a mirror itself"


def _groups(mirror: Mirror, topics: set[str]) -> Iterator[Change]:
    wanted = re.compile(mirror.route.groups)
    for group in mirror.source.groups():
        if not wanted.fullmatch(group):
            yield Change("group", group, "leave", why="it does not match --groups")
            continue
        if group in mirror.control.moved:
            yield Change("group", group, "leave", why="a failover has moved it")
            continue
        offsets = {at: offset for at, offset in mirror.source.committed(group).items() if at[0] in topics}
        if not offsets:
            yield Change("group", group, "leave", why="it has no offsets of mirrored topics")
            continue
        what = {f"{topic}-{number}": offset for (topic, number), offset in sorted(offsets.items())}
        forward = mirror.forward_offsets(group, topics)
        if forward or any(at not in mirror.control.offsets for at in offsets):
            yield Change("group", group, "alter", what, "offsets at the source; they are translated as records arrive")
