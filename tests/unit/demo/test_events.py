"""The demo's sources: this machine's logs and metrics as events."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

from demo.events import Metrics, commit_events, package_events

_LINES = """2026-05-20 10:00:00 startup archives unpack
2026-05-20 10:00:01 install tmux:amd64 <none> 3.3a-3
2026-05-20 10:00:02 status installed tmux:amd64 3.3a-3
"""


def test_dpkg_logs_become_events_oldest_first(tmp_path: Path) -> None:
    (tmp_path / "dpkg.log").write_text(_LINES + "garbage\n")
    with gzip.open(tmp_path / "dpkg.log.2.gz", "wt") as rotated:
        rotated.write("2026-04-01 09:00:00 upgrade libc6:amd64 1 2\n")
    for name, at in (("dpkg.log.2.gz", 1), ("dpkg.log", 2)):
        path = tmp_path / name
        path.touch()
        subprocess.run(["touch", "-d", f"@{at}", path], check=True)
    events = list(package_events(tmp_path))
    assert [(e.key, e.value["action"], e.value["state"]) for e in events] == [
        ("libc6", "upgrade", None), ("tmux", "install", None), ("tmux", "status", "installed"),
    ]  # fmt: skip
    assert events[0].value["versions"] == ["1", "2"]
    assert events[1].timestamp_ms + 1000 == events[2].timestamp_ms


def test_a_machine_without_dpkg_or_git_has_no_events(tmp_path: Path) -> None:
    assert list(package_events(tmp_path)) == []
    assert list(commit_events(tmp_path)) == []


def test_commits_become_events(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "core.hooksPath=/dev/null"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "a").write_text("1\n2\n")
    git("add", "a")
    git("commit", "-m", "First: a\tfile", "--date", "2026-01-01T00:00:00Z")
    (event,) = commit_events(tmp_path)
    assert event.key == "Ada"
    assert {k: event.value[k] for k in ("subject", "files", "added", "deleted")} == {
        "subject": "First: a\tfile", "files": 1, "added": 2, "deleted": 0,
    }  # fmt: skip


def test_metrics_tell_what_changed_since_the_last_sample() -> None:
    metrics = Metrics()
    first = metrics.sample(1000)
    assert "memory" in {event.value["metric"] for event in first}
    sum(range(2_000_000))  # something to see
    second = metrics.sample(1100)
    assert {event.timestamp_ms for event in second} == {1100}
    for event in second:
        assert event.value["value"] >= 0
        assert event.value["unit"] in ("%", "MiB", "KiB/s")
