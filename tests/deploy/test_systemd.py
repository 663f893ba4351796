"""The units of `deploy/systemd`, and the commands of `docs/production/systemd.md`, under a real systemd: process 1 of
namespaces of its own, on this machine's files."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.roots import ROOT, Root, why_not
from tests.deploy.snippets import snippets

UNITS = ROOT / "deploy" / "systemd"
PAGE = "docs/production/systemd.md"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
WAIT_S = 120
COMMAND = """#!/bin/sh
export LD_LIBRARY_PATH=/opt/python/lib PYTHONPATH=/opt/ottla/src
exec /opt/ottla/bin/python3 -m ottla.cli.main "$@"
"""
"""`ottla`, with this run's Python wherever that came from."""


def test_the_template_differs_in_names_only() -> None:
    one, several = ((UNITS / name).read_text().splitlines() for name in ("ottla.service", "ottla@.service"))
    assert len(one) == len(several)
    changed = [(was, now) for was, now in zip(one, several, strict=True) if was != now and not was.startswith("#")]
    for was, now in changed:
        assert now in (
            was.replace("Ottla,", "Ottla node %i,"),
            was.replace("default/ottla", "default/ottla-%i"),
            was.replace("server.properties", "%i.properties"),
            f"{was}/%i",
        )
    assert len(changed) == 5


@pytest.fixture(scope="module")
def machine() -> Iterator[Root]:
    """A machine with systemd, and Ottla where `pip install` would have put it."""
    if not Path("/lib/systemd/systemd").exists():
        pytest.skip("needs root and namespaces: no systemd here")
    if (why := why_not()) is not None:
        pytest.skip(why)
    libraries = Path(sys.prefix) / "lib" / PYTHON / "site-packages"
    binds = {
        "/repo": str(ROOT),
        "/opt/python": sys.base_prefix,
        f"/opt/ottla/lib/{PYTHON}/site-packages": str(libraries),
        "/opt/ottla/src": str(ROOT / "src"),
    }
    with Root(systemd=True, binds=binds) as root:
        root.run(
            f"mkdir -p /opt/ottla/bin && ln -s /opt/python/bin/{PYTHON} /opt/ottla/bin/python3\n"
            "echo 'home = /opt/python/bin' >/opt/ottla/pyvenv.cfg\n"
            "cat >/opt/ottla/bin/ottla && chmod 755 /opt/ottla/bin/ottla",
            stdin=COMMAND,
        )
        yield root


def shown(machine: Root, unit: str, name: str) -> str:
    return machine.run(["systemctl", "show", "--value", "-p", name, unit]).stdout.strip()


def wait_until(machine: Root, unit: str, name: str, value: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while (found := shown(machine, unit, name)) != value:
        assert time.monotonic() < deadline_s, f"{name} of {unit} is {found}:\n{machine.console}"
        time.sleep(0.1)


def typed(machine: Root, number: int) -> str:
    """What a block of the page prints."""
    blocks = [text for name, text in snippets(PAGE) if name != "install"]
    text = re.sub(r"\bsudo ", "", blocks[number])
    return machine.run(text, cwd="/repo").stdout


def test_systemd_understands_the_units(machine: Root) -> None:
    done = machine.run(
        "systemd-analyze verify deploy/systemd/ottla.service deploy/systemd/ottla@one.service 2>&1", cwd="/repo"
    )
    assert done.stdout == ""


def test_the_exposure_is_what_the_page_says() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs root and namespaces: no systemd here")
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNITS / "ottla.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"Overall exposure level for ottla.service: ([\d.]+)", done.stdout)
    assert found is not None
    assert f"rates its exposure {found[1]} of 10" in (ROOT / PAGE).read_text(encoding="utf-8")


def test_a_node_installed_as_the_page_says(machine: Root) -> None:
    """In order: install and start, use, a hung node, a wrong setting, several nodes."""
    typed(machine, 0)
    assert shown(machine, "ottla", "ActiveState") == "active"
    assert re.fullmatch(r"node 1 of cluster \S+ serves", shown(machine, "ottla", "StatusText"))
    assert "1000" in typed(machine, 1).splitlines()
    user = machine.run(["ps", "-o", "user=", "-p", shown(machine, "ottla", "MainPID")]).stdout.strip()
    assert user == "ottla"
    assert shown(machine, "ottla", "LimitNOFILE") == "1048576"
    hung_is_restarted(machine)
    mistake_is_not_restarted(machine)
    typed(machine, 2)
    wait_until(machine, "ottla@1", "NRestarts", "1")
    for number in "123":
        wait_until(
            machine, f"ottla@{number}", "StatusText", shown(machine, "ottla@2", "StatusText").replace("2", number, 1)
        )
    machine.run("systemctl stop ottla@1 ottla@2 ottla@3")
    for number in "123":
        assert shown(machine, f"ottla@{number}", "Result") == "success"
        assert shown(machine, f"ottla@{number}", "ExecMainStatus") == "0"
        machine.run(f"test -e /var/lib/ottla/{number}/data/.kafka_cleanshutdown")


def hung_is_restarted(machine: Root) -> None:
    drop_in = "/run/systemd/system/ottla.service.d/watchdog.conf"
    machine.run(f"mkdir -p $(dirname {drop_in}) && printf '[Service]\\nWatchdogSec=2\\n' >{drop_in}")
    machine.run("systemctl daemon-reload && systemctl restart ottla")
    pid = shown(machine, "ottla", "MainPID")
    assert shown(machine, "ottla", "NRestarts") == "0"
    machine.run(["kill", "-STOP", pid])
    wait_until(machine, "ottla", "NRestarts", "1")
    wait_until(machine, "ottla", "ActiveState", "active")
    said = machine.run("/opt/ottla/bin/ottla consume orders --from beginning --count 1000 | tail -1").stdout
    assert said == "1000\n"
    machine.run(f"rm {drop_in} && systemctl daemon-reload && systemctl restart ottla")


def mistake_is_not_restarted(machine: Root) -> None:
    machine.run("systemctl stop ottla")
    assert shown(machine, "ottla", "Result") == "success"
    machine.run("test -e /var/lib/ottla/data/.kafka_cleanshutdown")
    machine.run("echo OTTLA_NUM_PARTITIONS=many >/etc/default/ottla")
    assert machine.run("systemctl start ottla", check=False).returncode != 0
    assert shown(machine, "ottla", "ExecMainStatus") == "2"
    assert shown(machine, "ottla", "ActiveState") == "failed", "a restart would not help"
    machine.run("rm /etc/default/ottla && systemctl start ottla")
