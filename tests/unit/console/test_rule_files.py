"""Files of a console: its options in one file, and rules that are read again when they change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.exits import CommandFailed
from ottla.cli.server.beside import console_at
from ottla.client.properties import security_from
from ottla.client.security_settings import WrongSecurity
from ottla.console.__main__ import options_of
from ottla.console.access.roles import Forbidden, read_roles
from ottla.console.access.rule_files import RuleFiles
from ottla.console.acts.table import BY_NAME
from ottla.console.asking import Asking, Site
from ottla.console.masks import read_masks
from ottla.console.settings_file import SettingsFile, parse_settings, read_settings
from ottla.errors import OttlaError
from tests.unit.console.fake_cluster import FakeBrokers, user

ROLE = '[[role]]\nname = "r"\nusers = ["ann"]\ndata = ["{}"]\n'
MASK = '[[mask]]\ntopics = ["*"]\nfields = ["{}"]\n'


class Kept:
    """A console's rules in files."""

    def __init__(self, directory: Path) -> None:
        self.masks, self.roles = directory / "masks.toml", directory / "roles.toml"
        self.masks.write_text(MASK.format("card"))
        self.roles.write_text(ROLE.format("orders"))
        self.site = Site(read_masks(self.masks), roles=read_roles(self.roles, BY_NAME))
        self.files = RuleFiles(self.site, self.masks, self.roles, [])
        self.changes = 0

    def look(self) -> None:
        self.files._changed = self._count
        self.files.look()

    def _count(self) -> None:
        self.changes += 1

    def rights(self, name: str = "ann") -> Any:
        return Asking(user(FakeBrokers(["orders"]), name), self.site, {}).rights

    def told(self) -> list[tuple[str, str]]:
        return [(each.kind, each.outcome) for each in self.site.trail.entries()]


def replace(path: Path, text: str) -> None:
    """As a careful program replaces a file, so that its inode is another one."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def test_a_right_is_given_and_taken_without_a_restart(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.rights().ensure_read("orders")
    kept.look()
    assert (kept.changes, kept.told()) == (0, [])  # nothing has changed
    replace(kept.roles, ROLE.format("other"))
    kept.look()
    with pytest.raises(Forbidden):
        kept.rights().ensure_read("orders")
    kept.rights().ensure_read("other")
    replace(kept.masks, MASK.format("email"))
    kept.look()
    assert list(kept.rights().mask("other").fields) == [("email",)]
    assert (kept.changes, kept.told()) == (2, [("rules", "accepted")] * 2)


@pytest.mark.parametrize("text", ["", "[[role]]", "no toml", ROLE.format("x") * 2, None])
def test_a_wrong_file_changes_nothing_and_is_logged(tmp_path: Path, text: str | None) -> None:
    kept = Kept(tmp_path)
    if text is None:
        kept.roles.unlink()
    else:
        replace(kept.roles, text)
    kept.look()
    kept.look()
    kept.rights().ensure_read("orders")
    assert kept.rights("bob").is_nobody
    assert (kept.changes, kept.told()) == (0, [("rules", "refused")])
    replace(kept.roles, ROLE.format("other"))
    kept.look()
    kept.rights().ensure_read("other")


def test_a_change_between_the_first_reading_and_the_first_look_is_seen(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    site = Site(kept.site.masks, roles=kept.site.roles)
    replace(kept.roles, ROLE.format("late"))
    RuleFiles(site, kept.masks, kept.roles, [])
    assert site.roles.roles[0].data == ("late",)


def test_the_options_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "console.toml"
    file.write_text('roles = "roles.toml"\nmasks = "/m.toml"\nhost_names = ["c.example.com"]\nread_only = true\n')
    assert read_settings(file) == SettingsFile(
        masks=Path("/m.toml"), roles=tmp_path / "roles.toml", host_names=("c.example.com",), read_only=True
    )
    assert parse_settings({}, file) == SettingsFile()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"role": "x"}, "unknown entry 'role'; known: masks, roles"),
        ({"roles": 3}, "roles must be a text"),
        ({"roles": ""}, "roles must be a text"),
        ({"registry": ["x"]}, "registry must be a text"),
        ({"host_names": "x"}, "host_names must be a list of texts"),
        ({"read_only": "yes"}, "read_only must be true or false"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OttlaError, match=r"console\.toml: ") as refused:
        parse_settings(given, Path("console.toml"))
    assert said in str(refused.value)


def beside(directory: Path, text: str, host: str = "127.0.0.1") -> Any:
    file = directory / "console.toml"
    file.write_text(text)
    return console_at(host, 0, {}, file)


def test_a_console_beside_a_node_has_the_options_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PIPELINES", "here")
    (tmp_path / "roles.toml").write_text(ROLE.format("orders"))
    (tmp_path / "tls.properties").write_text("ssl.keystore.location=k.pem\n")
    made = beside(tmp_path, 'roles = "roles.toml"\nread_only = true\nhttp_config = "tls.properties"\n')
    sent = {**made.options, "bootstrap": "b:1", "host": made.host, "port": made.port}
    options = options_of(sent, security_from(environ={}), made.http)
    assert (options.roles, options.is_read_only, options.masks) == (tmp_path / "roles.toml", True, None)
    assert options.pipelines == Path("here").absolute()
    assert options.http["ssl.keystore.location"] == "k.pem"
    named = beside(tmp_path, 'pipelines = "/p"\n')
    assert (named.options["pipelines"], named.http) == ("/p", {})
    assert console_at("127.0.0.1", 0, {"a": "b"}, None).http == {"a": "b"}


@pytest.mark.parametrize(
    ("text", "host", "said"),
    [
        ('roles = "none.toml"', "127.0.0.1", "none.toml cannot be read"),
        ('masks = "console.toml"', "127.0.0.1", "unknown entry 'masks'"),
        ('oidc = "none.toml"', "127.0.0.1", "none.toml cannot be read"),
        ("behind_proxy = true", "0.0.0.0", "everyone who reaches this machine could read every record"),
        ("nonsense = true", "127.0.0.1", "unknown entry 'nonsense'"),
    ],
)
def test_what_would_not_start_is_refused_before_the_node_starts(
    tmp_path: Path, text: str, host: str, said: str
) -> None:
    with pytest.raises(CommandFailed, match=said):
        beside(tmp_path, text, host)


@pytest.mark.parametrize("mechanism", [None, "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"])
def test_settings_of_a_console_need_no_login_of_its_own(mechanism: str | None) -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", **({"sasl.mechanism": mechanism} if mechanism else {})}
    with pytest.raises(WrongSecurity):
        security_from(given, {})
    login = security_from(given, {}, needs_login=False).login
    assert login is not None and (login.mechanism, login.username) == (mechanism or "SCRAM-SHA-512", "")


def test_what_is_there_of_a_login_has_to_be_right() -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    for more in ({"sasl.username": "a"}, {"sasl.mechanism": "NONE"}, {"sasl.username": "", "sasl.password": "x"}):
        with pytest.raises(WrongSecurity):
            security_from({**given, **more}, {}, needs_login=False)
