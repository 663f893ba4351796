"""`make release`, in a clone: what it changes, what it refuses, and that a failure leaves nothing behind."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tools import release as tool
from tools.release import Refused, order, planned, release, section

ROOT = Path(__file__).resolve().parents[3]
DAY = "2030-01-02"


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout of the repository")
    tree = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--shared", "--no-tags", str(ROOT), str(tree))
    for name, value in (("user.name", "Test"), ("user.email", "test@example.org")):
        git(tree, "config", name, value)
    changelog = tree / tool.CHANGELOG
    first, _, rest = changelog.read_text().partition("\n## ")
    head, _, rest = rest.partition("\n")
    changelog.write_text(f"{first}\n## Unreleased\n\n- Something new.\n\n## 0.0.9 ({head})\n{rest}")
    git(tree, "commit", "--quiet", "--all", "--message", "something new")
    return tree


def packages(root: Path, dist: Path) -> None:
    version = tool._current(root)
    dist.mkdir()
    for name in (f"ottla-{version}-py3-none-any.whl", f"ottla-{version}.tar.gz", "ottla-0.0.1.tar.gz"):
        (dist / name).write_bytes(name.encode())


def test_a_release(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release(clone, "7.0.0", today=DAY, build=packages)
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "show", "--format=%s", "--name-only", "v7.0.0^{commit}").split() == [
        "Release",
        "7.0.0",
        tool.CHANGELOG,
        tool.VERSION_FILE,
    ]
    assert git(clone, "cat-file", "-t", "v7.0.0") == "tag\n"
    assert 'VERSION = "7.0.0"' in (clone / tool.VERSION_FILE).read_text()
    assert f"\n## 7.0.0 ({DAY})\n\n- Something new.\n\n## 0.0.9 (" in (clone / tool.CHANGELOG).read_text()
    dist = clone / "dist"
    notes = (dist / "notes.md").read_text()
    assert notes.startswith("# Ottla 7.0.0\n\n- Something new.\n\n## Files\n") and "0.0.1" not in notes
    done = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=dist, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["ottla-7.0.0-py3-none-any.whl: OK", "ottla-7.0.0.tar.gz: OK"]
    assert "git push origin HEAD v7.0.0" in capsys.readouterr().out
    with pytest.raises(Refused, match=r"a tag v7\.0\.0 already"):
        release(clone, "7.0.0", build=packages)
    with pytest.raises(Refused, match="older than 7"):
        release(clone, "7.0.0rc1", build=packages)
    with pytest.raises(Refused, match="not '## Unreleased'"):
        release(clone, "7.0.1", build=packages)


def test_a_dry_run_changes_nothing(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = git(clone, "rev-parse", "HEAD")
    release(clone, "7.0.0", dry=True, today=DAY, build=packages)
    said = capsys.readouterr().out
    assert '+VERSION = "7.0.0"\n' in said and f"-## Unreleased\n+## 7.0.0 ({DAY})\n" in said
    assert (git(clone, "rev-parse", "HEAD"), git(clone, "status", "--porcelain"), git(clone, "tag")) == (before, "", "")
    assert not (clone / "dist").exists()


def test_a_failure_leaves_the_tree_as_it_was(clone: Path) -> None:
    def build(root: Path, dist: Path) -> None:
        raise Refused("no compiler")

    with pytest.raises(Refused, match="no compiler"):
        release(clone, "7.0.0", build=build)
    assert (git(clone, "status", "--porcelain"), git(clone, "tag")) == ("", "")


def test_what_it_refuses(clone: Path) -> None:
    with pytest.raises(Refused, match=r"no version: give one such as 0\.2\.0"):
        release(clone, "1.0")
    (clone / "new").touch()
    with pytest.raises(Refused, match=r"not clean(.|\n)*\?\? new"):
        release(clone, "7.0.0")


def test_the_image_context_has_what_the_dockerfile_copies(clone: Path) -> None:
    dist = clone / "dist"
    dockerfile = clone / tool.DOCKERFILE
    dockerfile.unlink(missing_ok=True)
    assert tool.image_context(clone, dist) is None
    dockerfile.write_text(
        "FROM x AS build\nCOPY pyproject.toml \\\n  setup.py ./\nCOPY --chown=1 src/ottla src/ottla\n"
        "COPY --from=build /opt /opt\n"
    )
    git(clone, "add", "--force", tool.DOCKERFILE)
    (clone / "src" / "ottla" / "untracked.py").touch()
    context = tool.image_context(clone, dist)
    assert context == dist / "image"
    names = {path.relative_to(context).as_posix() for path in context.rglob("*") if path.is_file()}
    assert {tool.DOCKERFILE, "pyproject.toml", "setup.py", tool.VERSION_FILE} <= names
    assert not {"README.md", "src/ottla/untracked.py"} & names


def test_versions_in_order() -> None:
    versions = ["0.1.0", "0.2.0a1", "0.2.0a2", "0.2.0b1", "0.2.0rc1", "0.2.0rc10", "0.2.0", "0.10.0", "1.0.0"]
    assert all(order(older) < order(newer) for older, newer in pairwise(versions))


def test_the_changelog_of_this_tree_can_be_released() -> None:
    """Its head is unreleased, or it was released just now."""
    text = (ROOT / tool.CHANGELOG).read_text()
    if not section(text, tool._current(ROOT)) or "(unreleased)" in text.split("\n## ")[1].splitlines()[0]:
        assert section(planned(ROOT, "99.0.0", DAY)[tool.CHANGELOG], "99.0.0")
