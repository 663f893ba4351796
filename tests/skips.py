"""In CI (`CI=true`) a test that skips has failed: what is not installed there is not tested, and nobody would notice.

Where a person runs the tests, what needs Java, Kafka, kcat or a compiler skips with a reason. A pytest plugin, which
`tests/conftest.py` registers; `MAY_SKIP` has the reasons that are accepted in CI too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

MAY_SKIP = {
    "fish is not installed": "a completion script for a shell that few have",
    "zsh is not installed": "a completion script for a shell that few have",
    "needs to mount a small disk": "containers may forbid it; disks in memory test the same",
    "no Kerberos here": "neither krb5kdc nor a Debian archive to fetch it from; compiling gssapi needs a compiler",
    "no kubectl here": "manifests are rendered by it; whoever has no cluster may have none",
    "no go here": "a language of the client matrix",
    "no node here": "a language of the client matrix",
    "no node and no npm here": "a language of the client matrix",
    "no npm here": "a language of the client matrix",
    "no cargo here": "a language of the client matrix",
    "no figures are kept for": "instructions are those of one build of Python",
    "needs root and namespaces": "a machine of its own for systemd or an image; containers may forbid it",
    "make deploy-check runs it": "installs a Debian system from its archive, which takes minutes",
    "needs a node of its own": "only where OTTLA_TEST_BOOTSTRAP names another broker",
}
"""How a reason may begin, and why that is no loss."""


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def refused(longrepr: Any) -> str | None:
    """What to say of a skip that CI does not accept."""
    reason = str(longrepr[2] if isinstance(longrepr, tuple) else longrepr).removeprefix("Skipped: ")
    if not in_ci() or reason.startswith(tuple(MAY_SKIP)):
        return None
    return f"skipped, which in CI is a failure: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and (why := refused(report.longrepr)):  # type: ignore[attr-defined]
        report.outcome, report.longrepr = "failed", why  # type: ignore[attr-defined]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """A module that skips itself, as `importorskip` does."""
    report = yield
    if report.skipped and (why := refused(report.longrepr)):  # type: ignore[attr-defined]
        report.outcome, report.longrepr = "failed", why  # type: ignore[attr-defined]
    return report
