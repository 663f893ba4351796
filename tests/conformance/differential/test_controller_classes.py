"""Levels of features and hosts of ACLs: the controller's answers are those of Kafka 4.4's own classes."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.controller.acls import _host_refusal
from ottla.controller.features import UpgradeType, update_features
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import EMPTY_IMAGE
from ottla.security.acls import HostPattern
from peers.kafka import cache, install, java
from tests.conformance.clients import build

pytestmark = pytest.mark.skipif(build.missing("tools") is not None, reason="no javac here")

SOURCE = Path(__file__).with_name("ControllerLines.java")
HOSTS = (
    "*", "1.2.3.4", "::1", "host.example", "", "10.0.0.0/8", "10.1.2.3/8", "10.0.0.0/0", "1.2.3.4/32", "10.0.0.0/33",
    "10.0.0.0/-1", "10.0.0/8", "10.0.0.0/", "/8", "10.0.0.0/08", "1.2.3.4/008", "010.0.0.0/8", "0001.2.3.4/8",
    "10.0.0.0/8 ", " 10.0.0.0/8", "10.0.0.256/8", "1.2.3.4.5/8", "10.0.0.0/255.0.0.0", "10.0.0.0/8/9", "*/3", "x/y",
    "2001:db8::/32", "2001:DB8::1/32", "2001:0db8:0:0::/32", "::/0", "::1/128", "::1/008", "fe80::1/129",
    "2001:db8::/", "fe80::%eth0/64", "fe80::1%/64", "fe80::1%a%b/64", "[::1]/128", "[::1/128", "::1]/128",
    "::1.2.3.4/96", "::ffff:1.2.3.0/120", "::ffff:0:0/96", "a:b/3", "12345::/16", ":::/3", "1:2:3:4:5:6:7/64",
    "1:2:3:4:5:6:7:8/64",
)  # fmt: skip
PLACES = (
    ("10.0.0.0/8", "10.255.255.255"), ("10.0.0.0/8", "11.0.0.0"), ("10.1.2.3/8", "10.200.0.1"),
    ("10.0.0.0/8", "10.0.0.0"), ("10.0.0.0/8", "0:0:0:0:0:0:0:1"), ("::/0", "1.2.3.4"), ("::/0", "0:0:0:0:0:0:0:1"),
    ("0.0.0.0/0", "1.2.3.4"), ("0.0.0.0/0", "0:0:0:0:0:0:0:1"), ("2001:db8::/32", "2001:db8:0:0:0:0:0:1"),
    ("2001:db8::/32", "2001:db9:0:0:0:0:0:1"), ("fe80::/10", "fe80:0:0:0:1:2:3:4%eth0"), ("1.2.3.4/32", "1.2.3.4"),
    ("1.2.3.4/32", "1.2.3.5"), ("1.2.3.4/31", "1.2.3.5"), ("10.0.0.0/33", "10.0.0.1"), ("10.0.0.0/08", "10.0.0.1"),
    ("010.0.0.0/8", "10.0.0.1"), ("10.0.0.0/8", "host"), ("10.0.0.0/8", ""), ("[::1]/128", "0:0:0:0:0:0:0:1"),
    ("64:ff9b::1.2.3.4/96", "64:ff9b:0:0:0:0:102:304"), ("::ffff:10.0.0.0/104", "10.1.2.3"),
)  # fmt: skip
CODES = {
    "NONE": ErrorCode.none,
    "UnsupportedVersionException": ErrorCode.unsupported_version,
    "InvalidRequestException": ErrorCode.invalid_request,
}


def test_levels_and_hosts(tmp_path: Path) -> None:
    """Every change of a level from every level, in every way, and the walk of hosts above."""
    install("4.4")
    subprocess.run(
        ["javac", "-cp", f"{cache('4.4') / 'libs'}/*", "-d", str(tmp_path), str(SOURCE)], check=True, timeout=120
    )
    command = java("org.apache.kafka.controller.ControllerLines", flags=["-XX:TieredStopAtLevel=1"], release="4.4")
    command[command.index("-cp") + 1] += f":{tmp_path}"
    asked = "\n".join([*HOSTS, *("\t".join(place) for place in PLACES)])
    said = subprocess.run(command, input=asked + "\n", capture_output=True, text=True, check=True, timeout=120)
    lines = iter(said.stdout.splitlines())
    assert sum(map(_is_level, iter(lines.__next__, "hosts"))) > 7000
    for host in HOSTS:
        below, above = next(lines).split("\t")
        assert (host, _code(host, networks=False)) == (host, CODES[below])
        assert (host, _code(host, networks=True)) == (host, CODES[above])
    for network, address in PLACES:
        assert (network, address, str(HostPattern(network).matches(address)).lower()) == (network, address, next(lines))
    assert next(lines, None) is None


def _code(host: str, *, networks: bool) -> ErrorCode:
    error = _host_refusal(host, networks=networks)
    return ErrorCode.none if error is None else error.code


def _is_level(line: str) -> bool:
    """Checks a change of a level."""
    metadata_version, name, before, level, kind, said = line.split("\t")
    features = {"metadata.version": int(metadata_version), name: int(before)}
    update = {"feature": name, "max_version_level": int(level), "upgrade_type": int(UpgradeType[kind])}
    try:
        update_features(replace(EMPTY_IMAGE, features=features), {"feature_updates": [update]}, "1", 1)
    except KafkaError as error:
        ours = str(error.message).partition("had an error: ")[2]
    else:
        ours = ""
    assert ours == said, line
    return True
