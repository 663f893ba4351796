"""The way back after a failover."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

from ottla import arrow
from ottla.mirror.control_topic import MirrorError
from ottla.mirror.mapping import Place
from ottla.mirror.mirror import Mirror, Route
from ottla.model import Offset


class Failback:
    """Brings what was written after a failover to the old source, and groups too. `step` until producers have moved,
    then `finish`."""

    def __init__(self, forward: Route, unmirrored: Path | None = None) -> None:
        """Records that were never mirrored go to the file `unmirrored`."""
        self.forward = Mirror(forward)
        self.back = Mirror(forward.reversed())
        self._unmirrored = unmirrored

    def prepare(self) -> int:
        """Note where copying back begins, once. Returns how many records the old source has that were never mirrored;
        they go to the file `unmirrored` as lines of JSON, and stay where they are."""
        self.forward.control.load()
        back, cuts = self.back.control, self.forward.control.cuts
        back.load()
        owned = {at: cut for at, cut in cuts.items() if self.forward.control.roles.get(at[0]) == "owned"}
        # One that began before, and was given back perhaps, has this cut as its start.
        new = {at: cut for at, cut in owned.items() if at not in back.offsets or back.offsets[at].start != cut}
        if not owned:
            raise MirrorError(f"no topics of {self.forward.route.source} have failed over: nothing to fail back")
        if not new:
            return 0
        ends = self.forward.source.ends(new, committed=False)
        left = self._report({at: (self.forward.control.offsets[at].source_end(), ends[at]) for at in new})
        back.note(
            [
                *((["moved", group], None) for group in back.moved),
                *((["origin", *at], ends[at]) for at in new),
                *((["start", *at], cut) for at, cut in new.items()),
                *((["role", topic], "mirror") for topic in {at[0] for at in new}),
            ]
        )
        return left

    def _report(self, ranges: dict[Place, tuple[Offset, Offset]]) -> int:
        count = 0
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(self._unmirrored.open("w")) if self._unmirrored is not None else None
            for (topic, partition), (start, end) in sorted(ranges.items()):
                if start >= end:
                    continue
                reader = arrow.read(
                    topic,
                    self.forward.route.source_bootstrap,
                    partitions=[partition],
                    start={partition: start},
                    end={partition: end},
                    columns=["topic", "partition", "offset", "timestamp", "key", "value"],
                    security=self.forward.route.source_security,
                )
                for batch in reader:
                    count += batch.num_rows
                    if out is not None:
                        out.writelines(json.dumps(_plain(row)) + "\n" for row in batch.to_pylist())
        return count

    def step(self) -> None:
        """Copy what is there now, and move groups."""
        self.prepare()
        self.back.step()
        self._groups_before_the_cut()

    def _groups_before_the_cut(self) -> None:
        """Groups that are still at records that came from the old source go on there, by the mapping turned round."""
        for group in self.back.source.groups():
            if not re.fullmatch(self.back.route.groups, group):
                continue
            cuts, has = self.forward.control.cuts, self.back.destination.committed(group)
            turned = {
                at: there
                for at, offset in self.back.source.committed(group).items()
                if at in cuts
                and offset < cuts[at]
                and (there := self.forward.control.offsets[at].back(offset)) is not None
            }
            forward = {at: offset for at, offset in turned.items() if offset > has.get(at, -1)}
            if forward:
                self.back.destination.commit(group, forward)

    def finish(self) -> dict[Place, Offset]:
        """Copy the rest, give the topics back to the old source, and let the route forward go on from there.

        Producers have to have stopped at the destination.
        """
        self.prepare()
        self.back.control.load()
        if "mirror" in self.back.control.roles.values():
            self.step()
            cuts = self.back.failover(reach_source=False)
        else:  # killed behind the failover
            cuts = dict(self.back.control.cuts)
        control = self.forward.control
        here = self.forward.ends_here(cuts)
        control.note(
            [
                *((["moved", group], None) for group in control.moved),
                *((["origin", *at], end) for at, end in here.items()),
                *((["start", *at], end) for at, end in cuts.items()),
                *((["role", topic], "mirror") for topic in {at[0] for at in cuts}),
                *((["cut", *at], None) for at in cuts),
            ]
        )
        return cuts


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A record as JSON: bytes as text where they are, otherwise as they are escaped."""
    return {
        name: value.decode(errors="backslashreplace")
        if isinstance(value, bytes)
        else value.isoformat()
        if hasattr(value, "isoformat")
        else value
        for name, value in row.items()
    }
