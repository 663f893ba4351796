"""Nothing in the tree depends on the machine where it was written: no home directories, no package mirrors."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PUBLIC_HOSTS = (
    "www.apache.org",
    "maven.apache.org",
    "www.w3.org",
    "json-schema.org",
    "cwiki.apache.org",
    "github.com",
    "issues.apache.org",
    "www.postgresql.org",
    "host.docker.internal",
)
"""Hosts that an address in the tree may have: name spaces, licences, references, and Docker's name for its host."""

_PLACES = re.compile(r"(?<![\w./$}-])/(?:work|root|home|Users|workspace|mnt)/[\w.]")
_REGISTRIES = re.compile(
    r"\b(?:[\w-]+\.)*(?:pypi|pythonhosted|artifactory|nexus|jfrog|"
    r"mirrors?(?=[\w.-]*\.(?:com|org|net|io|edu|cn|internal|local)\b)|repo1?\.maven)[\w.-]*\.\w{2,}\b"
)
_ADDRESSES = re.compile(r"https?://([\w.-]+\.[a-z]{2,})")


def committed() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout of the repository")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [path for name in names.decode().split("\0") if name and (path := ROOT / name).is_file()]


def offences(text: str) -> list[str]:
    found = [*_PLACES.findall(text), *_REGISTRIES.findall(text)]
    return found + [host for host in _ADDRESSES.findall(text) if host not in PUBLIC_HOSTS and "example" not in host]


def test_no_paths_of_a_machine_and_no_registry_hosts() -> None:
    found = {}
    for path in committed():
        if path == Path(__file__):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if offences(text):
            found[str(path.relative_to(ROOT))] = offences(text)
    assert found == {}


@pytest.mark.parametrize(
    "text", ["see /" + "work/x", "(/" + "root/.m2", "https://repo1." + "maven.org/x", "files.python" + "hosted.org"]
)
def test_they_would_be_found(text: str) -> None:
    assert offences(text)


@pytest.mark.parametrize("text", ["build/work/x", "https://www.apache.org/licenses", "a/root/b", "$HOME/work/x"])
def test_what_is_no_offence(text: str) -> None:
    assert not offences(text)
