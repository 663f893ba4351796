"""Certificates that change while a node runs: taken up if they can be used, else the old ones stay."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ottla.config.server import ServerConfig
from ottla.drivers.nodes.tls_certificates import DAY_MS, ListenerCertificates
from ottla.errors import OttlaError
from tests.certificates import NOW, Authority, ssl_settings

NOW_MS = int(NOW.timestamp() * 1000)
AUTHORITY = Authority()
ALIAS = "listener.name.ssl."


def config(settings: dict[str, str]) -> ServerConfig:
    return ServerConfig.load(
        overrides={"listeners": "SSL://127.0.0.1:9092", "inter.broker.listener.name": "SSL", **settings}
    )


def started(settings: dict[str, str], *, among_nodes: bool = False) -> ListenerCertificates:
    found = ListenerCertificates(
        config(settings), "SSL", lambda path: Path(path).read_bytes(), serves=True, among_nodes=among_nodes
    )
    found.start(NOW_MS)
    return found


def look(listener: ListenerCertificates) -> bool:
    """Whether new ones were taken up. Raises OttlaError where the old ones stay."""
    stores = listener.read(listener.settings())
    if not listener.is_new(stores):
        return False
    listener.take_up(listener.check(stores, NOW_MS))
    return True


def test_a_renewed_certificate_is_taken_up(tmp_path: Path) -> None:
    listener = started(ssl_settings(tmp_path, AUTHORITY, AUTHORITY.issue("node", days=(-1, 10))))
    before = listener.contexts.server
    assert not look(listener)
    ssl_settings(tmp_path, AUTHORITY, AUTHORITY.issue("node", days=(-1, 400)))
    assert look(listener)
    assert listener.contexts.server is not before
    assert listener.reloads == 1
    assert not look(listener)


def test_a_symbolic_link_that_is_moved(tmp_path: Path) -> None:
    """Kubernetes writes a new directory, and moves the link `..data` to it."""
    link = tmp_path / "..data"
    for number in (1, 2):
        ssl_settings(tmp_path / f"..{number}", AUTHORITY, AUTHORITY.issue("node", days=(-1, 10 * number)))
    link.symlink_to("..1")
    settings = ssl_settings(link, AUTHORITY, AUTHORITY.issue("node"))
    listener = started(settings)
    link.unlink()
    link.symlink_to("..2")
    assert look(listener)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("other key", "does not belong"),
        ("half", "cannot be used"),
        ("gone", "cannot be read"),
        ("expired", "has expired"),
        ("early", "not valid yet"),
        ("name", "is of CN=other, the old one of CN=node"),
        ("host", "lacks an alternative name"),
        ("authority", "the trust store accepts the old certificate but not the new one"),
    ],
)
def test_what_cannot_be_used_leaves_the_old_one(tmp_path: Path, change: str, said: str) -> None:
    settings = ssl_settings(tmp_path, AUTHORITY, AUTHORITY.issue("node"))
    listener = started(settings)
    before = listener.contexts.server
    keys = tmp_path / "keys.pem"
    fresh = AUTHORITY.issue("node")
    match change:
        case "other key":
            keys.write_text(AUTHORITY.issue("node").key_pem() + fresh.chain_pem)
        case "half":
            keys.write_text(fresh.pem()[:-400])
        case "gone":
            keys.unlink()
        case "expired":
            keys.write_text(AUTHORITY.issue("node", days=(-20, -10)).pem())
            settings["ssl.client.auth"] = "none"
        case "early":
            keys.write_text(AUTHORITY.issue("node", days=(10, 20)).pem())
        case "name":
            keys.write_text(AUTHORITY.issue("other").pem())
        case "host":
            keys.write_text(AUTHORITY.issue("node", hosts=("localhost",)).pem())
        case "authority":
            keys.write_text(Authority().issue("node").pem())
    with pytest.raises(OttlaError) as refused:
        look(listener)
    assert said in str(refused.value)
    assert listener.contexts.server is before


def test_changes_of_names_can_be_allowed(tmp_path: Path) -> None:
    allowed = {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
    listener = started({**ssl_settings(tmp_path, AUTHORITY, AUTHORITY.issue("node")), **allowed})
    ssl_settings(tmp_path, AUTHORITY, AUTHORITY.issue("other", hosts=("elsewhere",)))
    assert look(listener)


def test_an_additional_alternative_name_needs_no_permission(tmp_path: Path) -> None:
    listener = started(ssl_settings(tmp_path, AUTHORITY, AUTHORITY.issue("node", hosts=("localhost",))))
    ssl_settings(tmp_path, AUTHORITY, AUTHORITY.issue("node", hosts=("more", "localhost")))
    assert look(listener)


def test_among_nodes_the_own_certificate_has_to_be_trusted(tmp_path: Path) -> None:
    with pytest.raises(OttlaError, match=r"listener SSL: nodes connect to each other here"):
        started(ssl_settings(tmp_path, Authority(), AUTHORITY.issue("node")), among_nodes=True)
    listener = started(ssl_settings(tmp_path, AUTHORITY, AUTHORITY.issue("node")), among_nodes=True)
    ssl_settings(tmp_path, Authority(), AUTHORITY.issue("node"))
    with pytest.raises(OttlaError, match="does not accept the node's own"):
        look(listener)


def test_the_same_refusal_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    listener = started(ssl_settings(tmp_path, AUTHORITY, AUTHORITY.issue("node")))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            listener.keep(OttlaError("broken"))
        listener.unchanged()
        listener.keep(OttlaError("broken"))
    assert len(caplog.records) == 2


def test_an_expiry_is_logged_in_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ottla.tls"):
        listener = started(ssl_settings(tmp_path, AUTHORITY, AUTHORITY.issue("node", days=(-1, 40))))
        told = []
        for day in range(45):
            listener.warn(NOW_MS + day * DAY_MS)
            listener.warn(NOW_MS + day * DAY_MS + 1)
            if caplog.records:
                told.append(day)
                caplog.clear()
    assert told == [10, 33, 39]


def test_settings_of_the_listener_go_first(tmp_path: Path) -> None:
    everywhere = ssl_settings(tmp_path / "all", Authority(), AUTHORITY.issue("everywhere"))
    own = ssl_settings(tmp_path / "own", AUTHORITY, AUTHORITY.issue("here"), ALIAS)
    certificate = started({**everywhere, **own}).loaded.certificate
    assert certificate is not None and certificate.subject == "CN=here"


def test_dynamic_settings_go_before_static_ones(tmp_path: Path) -> None:
    listener = started(ssl_settings(tmp_path / "a", AUTHORITY, AUTHORITY.issue("node"), ALIAS))
    other = ssl_settings(tmp_path / "b", AUTHORITY, AUTHORITY.issue("node"), ALIAS)
    tried = listener.settings({f"{ALIAS}ssl.keystore.location": other[f"{ALIAS}ssl.keystore.location"]})
    assert tried.key_store.location == str(tmp_path / "b" / "keys.pem")
    listener._config.apply_dynamic({}, other)
    assert listener.settings().key_store.location == str(tmp_path / "b" / "keys.pem")
    assert look(listener)


def test_where_clients_log_in_only_the_listener_s_own_setting_asks_for_certificates(tmp_path: Path) -> None:
    """KIP-684: else a broker-wide ssl.client.auth would keep out clients that have a password."""
    texts = ssl_settings(tmp_path, AUTHORITY, AUTHORITY.issue("node"), client_auth="required")
    for more, expected in (({}, "none"), ({f"{ALIAS}ssl.client.auth": "requested"}, "requested")):
        found = ListenerCertificates(
            config({**texts, **more}),
            "SSL",
            lambda path: Path(path).read_bytes(),
            serves=True,
            among_nodes=False,
            has_login=True,
        )
        assert found.settings().client_auth == expected
