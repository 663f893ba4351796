"""The field's words: names, comments, messages and pages use the terms that a reader of Kafka's or Raft's papers knows.

A pattern sees prose and identifiers alike: a space in it stands for a space, an underscore, a hyphen or a line's end.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["src", "tests", "docs", "bench", "demo", "tools", "deploy"]
SUFFIXES = {".py", ".md", ".txt", ".yml", ".yaml", ".toml", ".json", ".sh"}
TABLES = {"test_words.py", "test_plain_pages.py"}
"""Files that name the phrases which they look for."""
BUILT = {"build", "ottla.egg-info", "node_modules", "target", "__pycache__"}
FILES_MIN = 400


@dataclass(frozen=True)
class Rule:
    pattern: str
    write: str
    example: str
    within: str | tuple[str, ...] = ""
    """Paths in which it is searched; elsewhere it is used for something else."""

    def compiled(self) -> re.Pattern[str]:
        return re.compile(f"(?<![a-z])(?:{self.pattern.replace(' ', SPACE)})(?![a-z])", re.IGNORECASE)


CODE = ("src/", "tests/", "demo/", "tools/", "bench/")
SPACE = r"(?:[ _-]|\s*\n\s*(?:#+:? )?)"

RULES = [
    Rule("time stamps?", "timestamp", "the time stamp of a record"),
    Rule("(?:un)?synced|syncing|syncs|sync later|(?:a|the|full|failed) sync", "fsync", "what was synced"),
    Rule("gives? way|giving way|gave way", "yields to the event loop", "def test_it_gives_way():"),
    Rule("in turns", "in batches", "answered in turns"),
    Rule("mistakes? (?:of ours|of the node|in this program)", "internal error; bug", "# a mistake of\n        # ours"),
    Rule("stop was not clean|in good order", "unclean shutdown; clean shutdown marker", "closed in good order"),
    Rule("anew|afresh", "starts empty; is recreated; again", "it begins anew"),
    Rule(
        "set aside|sets aside|setting aside|doomed",
        "detach; schedule deletion; delete",
        "self._set_aside(log)",
    ),
    Rule("garbage", "files to delete; detached logs", "self.garbage.append(path)", within="src/"),
    Rule("forget(?=\\()|forget_\\w+", "detach; schedule deletion; delete; drop; expire", "self.logs.forget(key)"),
    Rule(
        "(?:take|takes|took|taken|taking) back", "restore; roll back; undo (each for one thing)", "self._take_back(end)"
    ),
    Rule("\\w+_told(?:_\\w+)?|told_\\w+", "log; report; answer", "test_a_full_disk_is_told"),
    Rule("house ?keeping|keeps? house", "periodic tasks", "async def _keep_house(self)"),
    Rule("who(?:ever)? waits", "waiters", "who waits is answered"),
    Rule("time-outs?", "timeout", "a session time-out"),
    Rule("can not", "cannot", "it can not be read"),
    # the table of plain sentences
    Rule(
        "(?:among|of) (?:its|their) own kind",
        "in mixed clusters with Kafka brokers",
        "among their own kind",
        within=CODE,
    ),
    Rule("with no jar", "without a connector JAR", "tables, with no jar to match", within=CODE),
    Rule("to just have", "Install only the command", "To just have the command", within=CODE),
    Rule(
        "begins? one of your own",
        "scaffolds a pipeline of your own",
        "stop them, and begin one of your own",
        within=CODE,
    ),
    Rule("lives? through", "survive; resume", "clients that live through the change", within=CODE),
    Rule("(?:take|takes|taking) it back", "cancels the move", "--cancel takes it back", within=CODE),
    Rule(
        "(?:that|which|where|when|as|while|whom?) nobody knows", "unknown", "records that nobody knows", within="src/"
    ),
    Rule("taken along", "replicated", "what is not taken along", within=CODE),
    Rule("takes? no records", "is unavailable for writes", "a disk that takes no records", within=CODE),
    Rule("printed is where", "The command prints", "Printed is where each begins", within=CODE),
    Rule(
        "is no (?:regular expression|valid|JSON|TOML|name (?:of|for))",
        "is not a",
        "x is no TOML",
        within="src/",
    ),
    Rule("exclude each other", "cannot be used together", "--a and --b exclude each other", within="src/"),
]


@dataclass(frozen=True)
class Allowed:
    path: str
    line: str
    """Part of the line, or all lines of the file."""
    why: str


ALLOWED = [
    Allowed("bench/mirror.py", "offset-syncs.topic.replication.factor", "MirrorMaker's own name"),
    Allowed("src/ottla/server/handlers/topics/metadata.py", "Topic name can not be null", "Kafka's own message"),
    Allowed(
        "src/ottla/storage/log/segment_deletion.py",
        "can not be deleted due to the configured policy",
        "Kafka's own message",
    ),
]


def files() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
    for folder in FOLDERS:
        found += (
            path
            for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix in SUFFIXES and not BUILT & set(path.parts) and path.name not in TABLES
        )
    return found


def problems(text: str, name: str) -> list[tuple[str, int, str, str]]:
    """(file, line number, line, what to write) of every word that is not the field's."""
    lines = text.splitlines()
    found = []
    for rule in (each for each in RULES if name.startswith(each.within)):
        for match in rule.compiled().finditer(text):
            number = text.count("\n", 0, match.start())
            found.append((name, number + 1, lines[number].strip(), rule.write))
    return found


def test_only_the_fields_words_are_used() -> None:
    paths = files()
    assert len(paths) >= FILES_MIN
    used: set[Allowed] = set()
    found = []
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        for problem in problems(path.read_text(encoding="utf-8"), name):
            allowed = [each for each in ALLOWED if each.path == name and each.line in problem[2]]
            used.update(allowed)
            if not allowed:
                found.append(problem)
    assert found == [], "write what stands last, or allow it with a reason"
    assert [each for each in ALLOWED if each not in used] == [], "not needed any more: take them off the list"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.example)
def test_each_word_would_be_found(rule: Rule) -> None:
    name = f"{rule.within if isinstance(rule.within, str) else rule.within[0]}a.py"
    assert [write for *_, write in problems(rule.example, name)] == [rule.write]
    assert problems(rule.write, name) == []


UNPLAIN = re.compile(r"(?:Of|That|Those|Who|Whom|Whose|Whoever|Nobody|Somebody|Whether or not|In a row|It is it)\b")
"""Words that no docstring begins with: it says what the thing is or does, not whose it is or to whom it happens."""


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """(line number, text) of every docstring, of attributes too."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                yield each.lineno, each.value.value


def test_docstrings_begin_with_what_it_is() -> None:
    paths = [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py")) if not BUILT & set(path.parts)]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:60]}"
        for path in paths
        for line, text in docstrings(path.read_text(encoding="utf-8"))
        if UNPLAIN.match(text.strip())
    ]
    assert len(paths) >= FILES_MIN
    assert found == [], "name the thing and say what it is or does"
    assert UNPLAIN.match("Of a partition; one of a session costs less.")
    assert not UNPLAIN.match("Offset of the first record.")
