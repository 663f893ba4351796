"""Kerberos principals and the rules that make users of them, beside Kafka's own: one JVM is asked all at once."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.errors import OttlaError
from ottla.security.sasl import AuthenticationFailed
from ottla.security.sasl.kerberos_names import ShortNamer
from peers.kafka import LIBS, install

NAMES = 400
RULES = 1200
SEED = 7
REALM = "EXAMPLE.ORG"

PROGRAM = """
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.security.kerberos.*;

public class Names {
    public static void main(String[] args) throws Exception {
        List<String> names = Files.readAllLines(Path.of(args[0]));
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[1]))) {
            KerberosShortNamer namer = null;
            try {
                namer = KerberosShortNamer.fromUnparsedRules(args[2], List.of(line.split("\\t")));
            } catch (RuntimeException e) {
                out.append("refused\\n");
                continue;
            }
            for (String name : names) {
                String found;
                try { found = "=" + namer.shortName(KerberosName.parse(name)); }
                catch (NoMatchingRule | IllegalArgumentException e) { found = "none"; }
                catch (Exception e) { found = "fails"; }
                out.append(found).append('\\t');
            }
            out.append('\\n');
        }
        System.out.print(out);
    }
}
"""

PARTS = ("alice", "Bob", "kafka", "HTTP", "a.b", "x-1", "o'hara", "$1", "", "admin", "\u00fcnal", "host.example.org")
REALMS = (REALM, "ACME.ORG", "example.org", "", "A")
FORMATS = ("$1", "$1@$0", "$0", "$1;$2", "$2", "x$1y", "", "$1$1", "$3", "$", "$1-$", "literal")
MATCHES = ("", ".*", "(a.*|B.*", "[a-z]+@.*", ".*@ACME\\\\.ORG", "alice", "^.*;admin$", "[", "(?i)bob.*", "\\\\w+")
SOURCES = ("@.*", "a", "(.)", "(a)(.)", "", "^", "x*", "(", "[^a-z]", ";.*$")
TARGETS = ("", "b", "$1", "$2", "<$0>", "\\\\$", "$", "$12", "a/b")
ENDS = ("", "/L", "/U", "L", "U", "g/L", "x", "//")


def random_name(randoms: random.Random) -> str:
    text = randoms.choice(PARTS)
    for _ in range(randoms.choice((0, 0, 0, 1, 1, 2))):
        text += f"/{randoms.choice(PARTS)}"
    for _ in range(randoms.choice((0, 1, 1, 1, 1, 2))):
        text += f"@{randoms.choice(REALMS)}"
    return text


def random_rule(randoms: random.Random) -> str:
    if randoms.random() < 0.1:
        return randoms.choice(("DEFAULT", "default", "DEFAULTS", "RULE:", "RULE:[:$1]", "RULE:[a:$1]"))
    rule = f"RULE:[{randoms.choice((0, 1, 1, 1, 2, 2, 3, ''))}:{randoms.choice(FORMATS)}]"
    if randoms.random() < 0.6:
        rule += f"({randoms.choice(MATCHES)})"
    if randoms.random() < 0.5:
        rule += f"s/{randoms.choice(SOURCES)}/{randoms.choice(TARGETS)}/{randoms.choice(('', 'g'))}"
    return rule + randoms.choice(ENDS) if randoms.random() < 0.4 else rule


@pytest.mark.nightly("tests/unit/security/test_kerberos_names.py::test_names")
@pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to ask")
def test_names_and_rules(tmp_path: Path) -> None:
    """Rules that Kafka accepts and that fail at each login there are refused here at the start."""
    install()
    randoms = random.Random(SEED)
    names = [name for name in (random_name(randoms) for _ in range(NAMES)) if name]
    rules = [[random_rule(randoms) for _ in range(randoms.randrange(1, 4))] for _ in range(RULES)]
    (tmp_path / "names").write_text("\n".join(names) + "\n", encoding="utf-8")
    (tmp_path / "rules").write_text("\n".join("\t".join(each) for each in rules) + "\n", encoding="utf-8")
    (tmp_path / "Names.java").write_text(PROGRAM)
    command = ["java", "-Dfile.encoding=UTF-8", "-cp", f"{LIBS}/*", "Names.java", "names", "rules", REALM]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=120)
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(rules)
    compared = refused = stricter = 0
    for rule, answer in zip(rules, answers, strict=True):
        try:
            namer = ShortNamer(rule, REALM)
        except OttlaError:
            refused += answer == "refused"
            stricter += answer != "refused"
            continue
        assert answer != "refused", rule
        for name, found in zip(names, answer.split("\t"), strict=False):
            try:
                ours = "=" + namer.name_of(name)
            except AuthenticationFailed:
                ours = "none"
            assert ours == found, (rule, name)
            compared += 1
    assert compared > 40_000 and refused > 500, (compared, refused, stricter)
