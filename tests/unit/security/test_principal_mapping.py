"""`ssl.principal.mapping.rules`, as Kafka's `SslPrincipalMapper` reads them."""

from __future__ import annotations

import pytest

from ottla.errors import OttlaError
from ottla.security.principal_mapping import NoMatchingRule, PrincipalMapper

SERVICE = "CN=kafka1,OU=ServiceUsers,O=Acme,C=DE"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", SERVICE, SERVICE),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", SERVICE, "kafka1"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", "CN=x,OU=Other", "CN=x,OU=Other"),
        (r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L", SERVICE, "kafka1@serviceusers"),
        (r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U", SERVICE, "KAFKA1"),
        (r"RULE:^cn=(.*?),.*$/$1/ , RULE:^CN=(.*?),.*$/user-$1/", SERVICE, "user-kafka1"),
        (r"RULE:^CN=(?<who>.*?),.*$/${who}/", SERVICE, "kafka1"),
        (r"RULE:(?i)^cn=(.*?),.*$/$1/", SERVICE, "kafka1"),
        (r"RULE:^CN=(.*?),.*$/$12-$2/", SERVICE, "kafka12-$2"),  # groups that the pattern does not have are text
        (r"RULE:^CN=(.*?),.*$/\$1/", SERVICE, "$1"),
        (r"RULE:^CN=a\/b$/slash\/es/", "CN=a/b", "slash/es"),
        (r"RULE:CN=(.)/$1/,DEFAULT", "CN=ab", "CN=ab"),  # the whole subject has to match
        (r"RULE:^CN=([^,]*).*$/$1/", "CN=Größe,O=x", "Größe"),
        (r"RULE:^CN=(\w*)$/$1/,DEFAULT", "CN=Größe", "CN=Größe"),  # Java's \w is ASCII
    ],
)
def test_the_first_rule_that_matches_decides(rules: str, subject: str, name: str) -> None:
    assert PrincipalMapper(rules).name_of(subject) == name


def test_a_name_without_a_rule_is_nobody() -> None:
    mapper = PrincipalMapper(r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/")
    with pytest.raises(NoMatchingRule, match="CN=x"):
        mapper.name_of("CN=x")


@pytest.mark.parametrize(
    "rules",
    [
        "DEFAUL",
        "RULE:^CN=(.*)$/$1",
        "RULE:^CN=(.*/$1/",
        r"RULE:^CN=(\p{Alpha}*)$/$1/",
        r"RULE:^CN=([a-z&&[^b]]*)$/$1/",
        r"RULE:^CN=\Qa.b\E$/x/",
        r"RULE:^CN=(?P<who>.*)$/x/",
        r"RULE:^CN=(.*)\Z/$1/",  # Java's allows a line end behind it
        r"RULE:^CN=(\v*)$/$1/",  # all vertical blanks in Java, one of them in Python
        r"RULE:^CN=(\0101)$/$1/",  # A in Java, a NUL and 101 in Python
        r"RULE:^CN=(.*)$/${who}/",
        r"RULE:^CN=.*$/$1/",
        r"RULE:^CN=(.*)$/$/",
    ],
)
def test_what_python_would_read_differently_is_refused(rules: str) -> None:
    """Kroxylicious's CVE-2026-128424: a pattern that was read another way let in whom it was not written for."""
    with pytest.raises(OttlaError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapper(rules)
