"""`ottla cert ...`: which certificates there are and when they end, and new ones for the nodes of a directory."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from ottla.cli.exits import FAILED, MISUSED, OK, UNREACHABLE, CommandFailed
from ottla.cli.options import AsJson
from ottla.cli.output import iso_time, plural, print_json, print_table
from ottla.cli.security.secured import NODE_FILE, SECURITY, root_of
from ottla.cli.values import Days, Raw

if TYPE_CHECKING:
    from ottla.cli.security.authority import Shown

app = App(name="cert", help="Certificates: when they expire, and new ones for nodes.", sort_key=7)

SHAKE_S = 5.0
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):\d{1,5}")


@app.command
def show(*places: Raw, json: AsJson = False) -> int:
    """Show certificates: subject, names, and when they expire. Exit code 1 if one has expired.

    Parameters
    ----------
    places
        A PEM file, the directory of `ottla cluster up --secure` or `ottla server start --secure`, or HOST:PORT of a
        listener with TLS.
    """
    if not places:
        raise CommandFailed("name a file, a directory or HOST:PORT\n  see: ottla cert show --help", MISUSED)
    found = [each for place in places for each in _found(place)]
    now = datetime.now(UTC)
    if json:
        print_json([_row(each, now) for each in found])
    else:
        print_table(
            ("WHERE", "SUBJECT", "NAMES", "EXPIRES", "DAYS LEFT>"),
            [
                (row["where"], row["subject"], ", ".join(row["names"]), row["expires"], row["days_left"])
                for row in (_row(each, now) for each in found)
            ],
        )
    return FAILED if any(each.ends <= now for each in found) else OK


@app.command
def renew(directory: Raw, /, *, days: Annotated[Days, Parameter(help="Days that they are valid.")] = 397) -> int:
    """Renew the certificates of all nodes of a directory. Running nodes take them up without a restart.

    Parameters
    ----------
    directory
        The directory of `ottla cluster up --secure` or `ottla server start --secure`.
    """
    from ottla.cli.security import authority

    root = root_of(directory)
    files = node_files(root)
    if not files:
        raise CommandFailed(f"{directory} has no certificates of nodes: it was not made with --secure", FAILED)
    for file in files:
        made = authority.renew(root / SECURITY, file, days)
        print(f"{file}: valid until {_day(made)}")
    return OK


def node_files(root: Path) -> list[Path]:
    """Certificates of nodes in a secured directory."""
    own = root / SECURITY / NODE_FILE
    return [*([own] if own.exists() else []), *sorted(root.glob(f"node-*/{NODE_FILE}"))]


def _found(place: str) -> list[Shown]:
    """Raises CommandFailed."""
    from ottla.cli.security import authority

    path = Path(place)
    if path.is_dir():
        path = root_of(place)
        files = [path / SECURITY / authority.CA_FILE, *node_files(path)]
        found = [each for file in files if file.exists() for each in authority.shown_file(file)]
        if not found:
            raise CommandFailed(f"{place} has no certificates: it was not made with --secure", FAILED)
        return found
    if path.exists() or not _ADDRESS.fullmatch(place):
        found = authority.shown_file(path)
        if not found:
            raise CommandFailed(f"{place} has no certificate", FAILED)
        return found
    return [authority.shown_der(place, _served(place))]


def _served(address: str) -> bytes:
    """The certificate that a listener shows, whether it is trusted or not. Raises CommandFailed."""
    from ottla.cli.client import connect

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host = address.rpartition(":")[0].strip("[]")
    try:
        with connect(address, SHAKE_S) as plain, context.wrap_socket(plain, server_hostname=host) as secured:
            shown = secured.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        raise CommandFailed(f"{address} does not speak TLS ({(error.reason or str(error)).lower()})", FAILED) from None
    except OSError as error:
        raise CommandFailed(f"{address}: {error.strerror or error or 'no answer in time'}", UNREACHABLE) from None
    assert shown is not None
    return shown


def _row(each: Shown, now: datetime) -> dict[str, Any]:
    return {
        "where": each.where,
        "subject": each.subject,
        "issuer": each.issuer,
        "names": list(each.names),
        "begins": _iso(each.begins),
        "expires": _iso(each.ends),
        "days_left": each.days_left(now),
        "is_ca": each.is_ca,
    }


def _iso(moment: datetime) -> str | None:
    return iso_time(int(moment.timestamp() * 1000))


def _day(each: Shown) -> str:
    left = each.days_left(datetime.now(UTC))
    return f"{each.ends.date().isoformat()} ({plural(left, 'day')})"
