"""Subjects of certificates and the rules that make users of them, beside Java's own: one JVM is asked all at once."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from ottla.errors import OttlaError
from ottla.security.distinguished_names import rfc2253
from ottla.security.principal_mapping import NoMatchingRule, PrincipalMapper
from peers.kafka import LIBS, install

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to ask")

COUNT = 400
SEED = 5

OIDS = (
    NameOID.COMMON_NAME, NameOID.COUNTRY_NAME, NameOID.LOCALITY_NAME, NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.USER_ID,
    NameOID.DOMAIN_COMPONENT, NameOID.EMAIL_ADDRESS, NameOID.SERIAL_NUMBER, NameOID.SURNAME, NameOID.GIVEN_NAME,
    NameOID.TITLE, NameOID.PSEUDONYM, x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), x509.ObjectIdentifier("2.999.3"),
)  # fmt: skip
KINDS = (_ASN1Type.UTF8String, _ASN1Type.PrintableString, _ASN1Type.IA5String, _ASN1Type.T61String, _ASN1Type.BMPString)
CHARACTERS = "abcXYZ0189  ,=+<>#;\"\\/'()-.:?@_*&!|~\r\n\täßéЖ中🐘"
ASCII = [each for each in CHARACTERS if each.isascii()]

RULES = (
    "DEFAULT",
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT",
    r"RULE:^CN=(.*?)$/$1/L , RULE:^(.*?),.*$/$1/U",
    r"RULE:^.*?CN=([^,+]*).*$/$1@$2/L,RULE:^(\w+)=(.*)$/$2-$1/",
    r"RULE:^([A-Z]+)=(.).*$/x$2y$11\$1/,RULE:.*/nobody\/else/",
    r"RULE:(.)/$1$1/",
    r"RULE:^O=(.*)$/is-$2/,RULE:^(?<who>[^=]*)=.*$/${who}/",
    "",
    "RULE:a",
    "DEFAULT,RULE:^CN=(.*$/x/",
)
"""What is in a broker's file; the last ones are refused."""

PROGRAM = """
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class Names {
    static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    public static void main(String[] args) throws Exception {
        List<String> rules = Files.readAllLines(Path.of(args[1]));
        List<SslPrincipalMapper> mappers = new ArrayList<>();
        for (String rule : rules) {
            try {
                mappers.add(SslPrincipalMapper.fromRules(rule));
            } catch (RuntimeException e) {
                mappers.add(null);
            }
        }
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String name = new X500Principal(HexFormat.of().parseHex(line)).getName();
            out.append(hex(name));
            for (SslPrincipalMapper mapper : mappers) {
                String mapped;
                if (mapper == null) mapped = "refused";
                else try { mapped = "=" + hex(mapper.getName(name)); } catch (Exception e) { mapped = "none"; }
                out.append(' ').append(mapped);
            }
            out.append('\\n');
        }
        System.out.print(out);
    }
}
"""


def random_attribute(randoms: random.Random) -> x509.NameAttribute:
    while True:
        oid, kind = randoms.choice(OIDS), randoms.choice(KINDS)
        letters = CHARACTERS if kind in (_ASN1Type.UTF8String, _ASN1Type.BMPString) else ASCII
        text = "".join(randoms.choice(letters) for _ in range(randoms.randrange(1, 9)))
        if randoms.random() < 0.3:
            text = " " * randoms.randrange(1, 3) + text + " " * randoms.randrange(3)
        if randoms.random() < 0.1:
            text = "ServiceUsers"
        if oid == NameOID.COUNTRY_NAME:
            return x509.NameAttribute(oid, "".join(randoms.choice("DEFRUS") for _ in range(2)))
        try:
            attribute = x509.NameAttribute(oid, text, _type=kind)
            x509.Name([attribute]).public_bytes()
        except ValueError:  # more letters than this attribute may have
            continue
        return attribute


def random_name(randoms: random.Random) -> bytes:
    parts = [
        x509.RelativeDistinguishedName({random_attribute(randoms) for _ in range(1 if randoms.random() < 0.8 else 3)})
        for _ in range(randoms.randrange(1, 6))
    ]
    return x509.Name(parts).public_bytes()


def ours(rules: str, name: str) -> str:
    try:
        return "=" + PrincipalMapper(rules).name_of(name).encode().hex()
    except OttlaError:
        return "refused"
    except NoMatchingRule:
        return "none"


def test_names_and_rules_are_java_s(tmp_path: Path) -> None:
    install()
    randoms = random.Random(SEED)
    names = [random_name(randoms) for _ in range(COUNT)]
    (tmp_path / "Names.java").write_text(PROGRAM)
    (tmp_path / "names").write_text("".join(f"{each.hex()}\n" for each in names))
    (tmp_path / "rules").write_text("".join(f"{each}\n" for each in RULES))
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{LIBS}/*", str(tmp_path / "Names.java")]
    done = subprocess.run(
        [*command, str(tmp_path / "names"), str(tmp_path / "rules")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == COUNT
    kinds = set()
    for name, line in zip(names, lines, strict=True):
        theirs, *mapped = line.split(" ")
        text = bytes.fromhex(theirs).decode()
        assert rfc2253(name) == text, name.hex()
        for rules, expected in zip(RULES, mapped, strict=True):
            assert ours(rules, text) == expected, (rules, text)
            kinds.add((rules, expected[0]))
    assert len(kinds) > len(RULES)  # rules that match, and that do not
