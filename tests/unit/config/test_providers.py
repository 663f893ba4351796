"""`config.providers`: what is replaced, what is refused and how, and that no value is ever shown.

What Kafka 4.3.0 does was asked of its `AbstractConfig`; where it leaves a variable as it is written, this refuses."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.config.describe import broker_entries
from ottla.config.providers import Outside, Providers
from ottla.config.secret import Secret, revealed
from ottla.config.server import ServerConfig, SettingsFile
from ottla.errors import OttlaError

PACKAGE = "org.apache.kafka.common.config.provider."
CANARY = "canary-c0ffee"
FILES = {
    "/secrets/node.properties": f"pw={CANARY}\ncolon=a:b:c\nport=19092\n",
    "/secrets/..data/linked": f"{CANARY}\n",
    "/etc/shadow": f"root={CANARY}\n",
    "/dir/plain": f"{CANARY}\n",
    "/dir/two": f"{CANARY}\n\n",
    "/dir/windows": f"{CANARY}\r\n",
}
LINKS = {"/dir/escape": "/etc/shadow", "/secrets/linked": "/secrets/..data/linked"}
DECLARED = {
    "config.providers": "file, env ,dir",
    "config.providers.file.class": f"{PACKAGE}FileConfigProvider",
    "config.providers.file.param.allowed.paths": "/secrets,/more",
    "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
    "config.providers.env.param.allowlist.pattern": "NODE_.*",
    "config.providers.dir.class": f"{PACKAGE}DirectoryConfigProvider",
    "config.providers.dir.param.allowed.paths": "/dir",
}


def read(path: str) -> bytes:
    found = FILES.get(LINKS.get(path, path))
    if found is None:
        raise FileNotFoundError(2, "No such file or directory")
    return found.encode()


OUTSIDE = Outside(read, lambda path: LINKS.get(path, path), {"NODE_PASSWORD": CANARY, "HOME": "/root"})


def replaced(text: str, settings: Mapping[str, str] = DECLARED) -> str:
    return revealed(Providers(settings, OUTSIDE).replaced("sasl.jaas.config", text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${file:/secrets/node.properties:pw}", CANARY),
        ("${file:/secrets/../secrets/node.properties:colon}", "a:b:c"),
        (
            'user="x" password="${file:/secrets/node.properties:pw}" ${env:NODE_PASSWORD};',
            f'user="x" password="{CANARY}" {CANARY};',
        ),
        ("$${env:NODE_PASSWORD}", f"${CANARY}"),
        ("${dir:/dir:plain}", CANARY),
        ("${dir:/dir:two}", f"{CANARY}\n"),
        ("${dir:/dir:windows}", CANARY),
        ("plain", "plain"),
        ("${no variable}", "${no variable}"),
        ("$HOME", "$HOME"),
    ],
)
def test_values(text: str, value: str) -> None:
    assert replaced(text) == value
    found = Providers(DECLARED, OUTSIDE).replaced("x", text)
    assert isinstance(found, Secret) == (text != value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("${file:/secrets/node.properties:none}", "/secrets/node.properties has no key none"),
        ("${file:/secrets/missing:pw}", "/secrets/missing cannot be read: No such file or directory"),
        ("${file:/etc/shadow:root}", "is not below config.providers.file.param.allowed.paths=/secrets,/more"),
        ("${file:/secrets/../etc/shadow:root}", "is not below"),
        ("${file:/secretsx/y:root}", "is not below"),
        ("${file:pw}", "has no path"),
        ("${dir:/dir:../etc/shadow}", "names no file of the directory"),
        ("${dir:/dir:..}", "names no file of the directory"),
        ("${dir:/dir:escape}", "is not below config.providers.dir.param.allowed.paths=/dir"),
        ("${dir:/dir:none}", "/dir/none cannot be read"),
        ("${env:HOME}", "allowlist.pattern does not allow the variable HOME"),
        ("${env:NODE_NONE}", "the environment has no variable NODE_NONE"),
        ("${env:path:NODE_PASSWORD}", "has a path"),
        ("${vault:/x:y}", "config.providers has no provider vault, but file, env, dir"),
    ],
)
def test_what_has_no_value_names_the_setting_and_the_key(text: str, why: str) -> None:
    with pytest.raises(OttlaError) as refused:
        replaced(text)
    said = str(refused.value)
    assert said.startswith(f"setting sasl.jaas.config: {text}: ") and why in said
    assert CANARY not in said + "".join(traceback.format_exception(refused.value))


def test_links_within_the_allowed_paths_are_followed() -> None:
    """Kubernetes mounts a secret as a link to a directory beside it."""
    settings = {**DECLARED, "config.providers.dir.param.allowed.paths": "/secrets"}
    assert replaced("${dir:/secrets:linked}", settings) == CANARY


def test_without_limits_everything_may_be_read_as_in_kafka() -> None:
    settings = {name: text for name, text in DECLARED.items() if ".param." not in name}
    assert replaced("${file:/etc/shadow:root}${env:HOME}", settings) == f"{CANARY}/root"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"config.providers.file.class": "com.example.Vault"},
            "config.providers.file.class=com.example.Vault is not known",
        ),
        ({"config.providers.file.class": "javax.naming.InitialContext"}, "and no other class is loaded"),
        ({"config.providers": "file,env,dir,vault"}, "config.providers.vault.class is missing"),
        ({"config.providers.fiel.class": "x"}, "config.providers.fiel.class: config.providers does not name"),
        (
            {"config.providers.file.param.paths": "/x"},
            "file.param.paths is not known; FileConfigProvider has param.allowed",
        ),
        ({"config.providers.file.param.allowed.paths": "secrets"}, "secrets is not absolute"),
        ({"config.providers.env.param.allowlist.pattern": "("}, "cannot be parsed"),
    ],
)
def test_what_cannot_be_declared(settings: dict[str, str], why: str) -> None:
    with pytest.raises(OttlaError) as refused:
        replaced("x", {**DECLARED, **settings})
    assert why in str(refused.value)


# A node's file.


def node(*lines: str, environ: Mapping[str, str] | None = None, **more: str) -> ServerConfig:
    declared = [f"{name}={text}" for name, text in DECLARED.items()]
    file = SettingsFile("node.properties", "\n".join((*declared, *lines)).encode())
    return ServerConfig.load(file, more, environ or {}, lambda: "h", lambda: OUTSIDE)


def test_a_node_reads_them_and_shows_none() -> None:
    config = node(
        "listeners=PLAINTEXT://127.0.0.1:${file:/secrets/node.properties:port}",
        "ssl.keystore.password=${env:NODE_PASSWORD}",
        "ssl.keystore.location=/keys/${dir:/dir:plain}",
        'listener.name.x.plain.sasl.jaas.config=a.b.PlainLoginModule required password="${env:NODE_PASSWORD}";',
        "num.network.threads=7",
    )
    assert config.listeners[0].port == 19092 and config["num.network.threads"] == 7
    assert config["ssl.keystore.password"].reveal() == CANARY and config["ssl.keystore.location"] == f"/keys/{CANARY}"
    assert not any(name.startswith("config.providers") for name in config.without_effect)
    shown = {each["name"]: each for each in broker_entries(config.effective)}
    assert CANARY not in str(shown) + repr(config.static) + f"{config.static}"
    for name in ("listeners", "ssl.keystore.location", "ssl.keystore.password"):
        assert shown[name]["is_sensitive"] and shown[name]["value"] is None, name
        assert all(each["value"] is None for each in shown[name]["synonyms"] if each["source"] == 4)
    assert shown["num.network.threads"]["value"] == "7" and not shown["num.network.threads"]["is_sensitive"]


def test_a_value_that_cannot_be_is_refused_without_being_shown() -> None:
    with pytest.raises(OttlaError) as refused:
        node("num.io.threads=${env:NODE_PASSWORD}")
    said = "".join(traceback.format_exception(refused.value))
    line = len(DECLARED) + 1
    assert f"node.properties line {line}: setting num.io.threads=[hidden] is refused" in said and CANARY not in said


def test_a_missing_key_refuses_the_start_with_file_and_line() -> None:
    with pytest.raises(OttlaError) as refused:
        node("# a comment", "ssl.key.password=${file:/secrets/node.properties:none}")
    line = len(DECLARED) + 2
    assert str(refused.value).startswith(f"node.properties line {line}: setting ssl.key.password: ${{file:")


def test_only_the_file_is_replaced_and_only_it_declares() -> None:
    text = "${env:NODE_PASSWORD}"
    config = node(environ={"OTTLA_SSL_KEY_PASSWORD": text}, **{"ssl.keystore.password": text})
    assert config["ssl.key.password"].reveal() == config["ssl.keystore.password"].reveal() == text
    for environ, more in (({"OTTLA_CONFIG_PROVIDERS": "env"}, {}), ({}, {"config.providers": "env"})):
        with pytest.raises(OttlaError, match=r"config\.providers belongs into the settings file"):
            ServerConfig.load(None, more, environ)
    plain = ServerConfig.load(SettingsFile("f", b"ssl.key.password=${env:NODE_PASSWORD}"), {}, {})
    assert plain["ssl.key.password"].reveal() == text, "without config.providers a value is what it is"


@pytest.mark.parametrize("text", ["${file:/secrets/node.properties:pw}", "${env:NODE_PASSWORD}", "${dir:/dir:plain}"])
def test_settings_of_the_metadata_are_never_replaced(text: str) -> None:
    """CVE-2024-31141: whoever may alter a setting must not read the node's files with it."""
    config = node("listeners=PLAINTEXT://127.0.0.1:0")
    config.apply_dynamic({"ssl.keystore.password": text}, {"listener.name.plaintext.ssl.keystore.location": text})
    assert config["ssl.keystore.password"].reveal() == text
    assert config.dynamic_text("listener.name.plaintext.ssl.keystore.location") == text
    config.apply_dynamic({"config.providers": "env", "ssl.keystore.type": text}, {})
    assert config["ssl.keystore.type"] == text


def test_a_secret_of_a_secret_is_the_same() -> None:
    assert Secret(Secret(CANARY)).reveal() == CANARY and str(Secret(Secret(CANARY))) == "[hidden]"
    assert revealed(Secret(CANARY)) == revealed(CANARY) == CANARY and type(revealed(Secret(CANARY))) is str


def test_the_command_reads_real_files(tmp_path: Path) -> None:
    from ottla.cli.server.start import outside

    (tmp_path / "link").symlink_to("/etc/hostname")
    found = outside({"A": "b"})
    assert found.environ == {"A": "b"} and found.real(str(tmp_path / "link")) == os.path.realpath("/etc/hostname")
    (tmp_path / "file").write_text("x")
    assert found.read(str(tmp_path / "file")) == b"x"
