"""`make release VERSION=x.y.z`: everything of a release, in one command.

It checks that the tree is clean and the version new, writes the version and the changelog's head, builds wheels and the
source archive, checks and tries them, puts the image's context and the release notes beside them into `dist/`, commits
and tags. What fails before the commit leaves the tree as it was. Nothing is pushed or uploaded.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION_FILE = "src/ottla/version.py"
CHANGELOG = "CHANGELOG.md"
DOCKERFILE = "deploy/Dockerfile"
_HEAD = re.compile(r"^## (?:\S+ \(unreleased\)|unreleased)$", re.IGNORECASE | re.MULTILINE)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:(a|b|rc)(\d+))?")
_ENGINES = ("docker", "podman")


class Refused(Exception):
    """Why there is no release; the text says what to do."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("version", help="such as 0.2.0, or 0.2.0rc1")
    parser.add_argument("--dry-run", action="store_true", help="say what it would do, and change nothing")
    options = parser.parse_args()
    try:
        release(ROOT, options.version, dry=options.dry_run)
    except Refused as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def release(
    root: Path,
    version: str,
    *,
    dry: bool = False,
    today: str | None = None,
    build: Callable[[Path, Path], None] | None = None,
) -> None:
    """Make it. `build` writes the packages of a tree into a directory. Raises Refused."""
    check(root, version)
    texts = planned(root, version, today or datetime.now(UTC).date().isoformat())
    dist = root / "dist"
    if dry:
        for name, text in texts.items():
            sys.stdout.writelines(_difference(name, (root / name).read_text(), text))
        _say(f"would build the packages, the image's context and notes.md into {dist.name}/, commit and tag v{version}")
        return
    for name, text in texts.items():
        (root / name).write_text(text)
    try:
        (build or _build)(root, dist)
        context = image_context(root, dist)
        files = sorted(
            path for path in dist.iterdir() if path.name.endswith((".whl", ".tar.gz")) and version in path.name
        )
        (dist / "SHA256SUMS").write_text("".join(f"{_digest(path)}  {path.name}\n" for path in files))
        (dist / "notes.md").write_text(notes(texts[CHANGELOG], version, files))
        _image(context, version)
        _git(root, "commit", "--quiet", "--message", f"Release {version}", "--", *texts)
        _git(root, "tag", "--annotate", "--message", f"Ottla {version}", f"v{version}")
    except BaseException:
        _git(root, "checkout", "--quiet", "HEAD", "--", *texts)
        raise
    _say(f"committed, and tagged v{version}; {len(files)} packages, notes.md and SHA256SUMS are in {dist.name}/")
    _say(f"to publish it: git push origin HEAD v{version}, and upload what {dist.name}/SHA256SUMS names")


def check(root: Path, version: str) -> None:
    """Raises Refused where that release cannot be made of that tree."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise Refused(f"{version} is no version: give one such as 0.2.0 or 0.2.0rc1")
    if changed := _git(root, "status", "--porcelain").rstrip():
        raise Refused(f"the tree is not clean; commit first, or put away:\n{changed}")
    if _git(root, "tag", "--list", f"v{version}").strip():
        raise Refused(f"there is a tag v{version} already")
    current = _current(root)
    if order(version) < order(current):
        raise Refused(f"{version} is older than {current}, which {VERSION_FILE} has")
    if not _git(root, "config", "--get", "user.name", may_fail=True).strip():
        raise Refused("git does not know who commits: git config user.name NAME; git config user.email ADDRESS")


def order(version: str) -> tuple[int, int, int, int, int]:
    """By which versions are compared: a release follows its candidates."""
    found = _VERSION.fullmatch(version)
    assert found is not None, version
    major, minor, patch, kind, number = found.groups()
    return int(major), int(minor), int(patch), ("a", "b", "rc", None).index(kind), int(number or 0)


def planned(root: Path, version: str, today: str) -> Mapping[str, str]:
    """The new texts of the files that a release changes. Raises Refused where the changelog has nothing to release."""
    changelog = (root / CHANGELOG).read_text()
    head = _HEAD.search(changelog)
    if head is None or head.start() != changelog.index("\n## ") + 1:
        raise Refused(f"the first head of {CHANGELOG} is not '## Unreleased': what is new in {version}?")
    text = (root / VERSION_FILE).read_text().replace(f'VERSION = "{_current(root)}"', f'VERSION = "{version}"')
    new = f"{changelog[: head.start()]}## {version} ({today}){changelog[head.end() :]}"
    if not section(new, version):
        raise Refused(f"{CHANGELOG} says nothing below its head")
    return {VERSION_FILE: text, CHANGELOG: new}


def section(changelog: str, version: str) -> str:
    """What the changelog says of a version, without its head."""
    found = re.search(rf"^## {re.escape(version)} \([^\n]*\)$(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def notes(changelog: str, version: str, files: Sequence[Path]) -> str:
    """What a page of the release says."""
    lines = [f"# Ottla {version}", "", section(changelog, version), "", "## Files", ""]
    lines += [f"- `{path.name}` ({path.stat().st_size / 1e6:.1f} MB), SHA-256 `{_digest(path)}`" for path in files]
    return "\n".join([*lines, ""])


def image_context(root: Path, dist: Path) -> Path | None:
    """`dist/image`: the Dockerfile, and of the tree what it copies. None without a Dockerfile."""
    dockerfile = root / DOCKERFILE
    if not dockerfile.is_file():
        return None
    lines = dockerfile.read_text().replace("\\\n", " ").splitlines()
    copied = [DOCKERFILE, f"{DOCKERFILE}.dockerignore"]
    for words in (line.split()[1:] for line in lines if line.startswith("COPY ")):
        if not any(word.startswith("--from=") for word in words):
            copied += [word for word in words[:-1] if not word.startswith("--")]
    context = dist / "image"
    shutil.rmtree(context, ignore_errors=True)
    for name in _git(root, "ls-files", "-z", "--", *copied).rstrip("\0").split("\0"):
        place = context / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, place)
    return context


def _image(context: Path | None, version: str) -> None:
    """Build it where an engine runs, and say so where none does. Raises Refused."""
    if context is None:
        _say(f"no image: there is no {DOCKERFILE}")
        return
    engine = next((each for each in _ENGINES if _answers(each)), None)
    if engine is None:
        _say(f"no image: no container engine runs here ({' or '.join(_ENGINES)}); its context is in {context.name}/")
        return
    done = subprocess.run(
        [engine, "build", "--file", str(context / DOCKERFILE), "--tag", f"ottla:{version}", str(context)], check=False
    )
    if done.returncode:
        raise Refused(f"{engine} does not build the image")
    _say(f"image ottla:{version}, by {engine}")


def _answers(engine: str) -> bool:
    return shutil.which(engine) is not None and not subprocess.run([engine, "info"], capture_output=True).returncode


def _build(root: Path, dist: Path) -> None:
    command = [sys.executable, "-m", "tools.wheels", "--out", str(dist), "--archive-too"]
    if subprocess.run(command, cwd=root, check=False).returncode:
        raise Refused("not every package could be built or works; what is missing is said above")


def _current(root: Path) -> str:
    found = re.search(r'^VERSION = "([^"]+)"$', (root / VERSION_FILE).read_text(), re.MULTILINE)
    assert found is not None, VERSION_FILE
    return found[1]


def _difference(name: str, before: str, after: str) -> list[str]:
    return list(difflib.unified_diff(before.splitlines(True), after.splitlines(True), name, name, n=0))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(root: Path, *words: str, may_fail: bool = False) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        raise Refused(f"git {words[0]} failed: {done.stderr.strip()}")
    return done.stdout


def _say(line: str) -> None:
    print(f"   {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
