"""`ottla quota ...`: how much clients may use, like `kafka-configs.sh` with users, clients and ips."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter

from ottla.cli import wire
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import print_json, print_table
from ottla.cli.values import QuotaName, SettingName, Text
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey

app = App(
    name="quota", help="Show, set and remove client quotas: byte, request, mutation and connection rates.", sort_key=7
)

EXACT, DEFAULT = 0, 1
TYPES = ("user", "client-id", "ip")

User = Annotated[QuotaName | None, Parameter(name="--user", help="A user.")]
ClientId = Annotated[QuotaName | None, Parameter(name="--client-id", help="A client.id.")]
Ip = Annotated[QuotaName | None, Parameter(name="--ip", help="An address that clients connect from.")]
Default = Annotated[
    list[QuotaName] | None,
    Parameter(
        name="--default",
        negative="",
        help="The default for every user, client-id or ip without a quota of its own; may be repeated.",
    ),
]


@app.command(name="list")
def list_quotas(
    *,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default: Default = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Show all quotas, or those of a user, a client id or an address."""
    components = [
        {"entity_type": kind, "match_type": DEFAULT if name is None else EXACT, "match": name}
        for kind, name in _entity(user, client_id, ip, default).items()
    ]
    answer = wire.ask(bootstrap, ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": False})
    wire.ensure_none(answer, "the quotas")
    rows = []
    for entry in answer["entries"] or ():
        names = {each["entity_type"]: each["entity_name"] for each in entry["entity"]}
        quotas = {each["key"]: each["value"] for each in entry["values"]}
        rows.append({"entity": {kind: names[kind] for kind in TYPES if kind in names}, "quotas": quotas})
    rows.sort(key=lambda row: [(kind in row["entity"], row["entity"].get(kind) or "") for kind in TYPES])
    if json:
        print_json(rows)
        return OK
    print_table(
        ("WHO", "QUOTA", "VALUE>"),
        [[_shown(row["entity"]), key, f"{value:.15g}"] for row in rows for key, value in sorted(row["quotas"].items())],
    )
    return OK


@app.command(name="set")
def set_quotas(
    quotas: tuple[Text, ...],
    /,
    *,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default: Default = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Set quotas, such as producer_byte_rate=1048576, for a user, a client id, a user and client id together, or an
    address.

    Parameters
    ----------
    quotas
        NAME=VALUE: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, or for an
        address connection_creation_rate.
    """
    ops = []
    for text in quotas:
        name, _, value = text.partition("=")
        try:
            ops.append({"key": name, "value": float(value), "remove": False})
        except ValueError:
            raise CommandFailed(
                f"a quota is NAME=NUMBER, such as producer_byte_rate=1048576, not {text!r}", MISUSED
            ) from None
    return _alter(bootstrap, _entity(user, client_id, ip, default), ops, json=json)


@app.command
def remove(
    names: tuple[SettingName, ...],
    /,
    *,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default: Default = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Remove quotas, so that the next less specific ones apply.

    Parameters
    ----------
    names
        Quotas to remove, such as producer_byte_rate.
    """
    ops = [{"key": name, "value": 0.0, "remove": True} for name in names]
    return _alter(bootstrap, _entity(user, client_id, ip, default), ops, json=json)


def _entity(
    user: str | None, client_id: str | None, ip: str | None, default: list[str] | None
) -> dict[str, str | None]:
    """Names by type; None for the default of a type."""
    given: dict[str, str | None] = {"user": user, "client-id": client_id, "ip": ip}
    entity = {kind: name for kind, name in given.items() if name is not None}
    for kind in default or ():
        if kind not in TYPES:
            raise CommandFailed(f"--default must be user, client-id or ip, not {kind!r}", MISUSED)
        if kind in entity:
            raise CommandFailed(f"either --{kind} or --default {kind}", MISUSED)
    return {**entity, **dict.fromkeys(default or ())}


def _alter(bootstrap: str, entity: dict[str, str | None], ops: list[dict[str, Any]], *, json: bool) -> int:
    if not entity:
        raise CommandFailed("give --user, --client-id, --ip or --default", MISUSED)
    entry = {"entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()], "ops": ops}
    answer = wire.ask(bootstrap, ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [entry], "validate_only": False})
    (row,) = answer["entries"]
    if row["error_code"]:
        why = row["error_message"] or ErrorCode(row["error_code"]).name.upper()
        raise CommandFailed(f"the quota of {_shown(entity)} was refused: {why}", FAILED)
    changed = {op["key"]: None if op["remove"] else op["value"] for op in ops}
    if json:
        print_json({"entity": entity, "quotas": changed})
        return OK
    for key, value in changed.items():
        print(f"{_shown(entity)}: {key} {'removed' if value is None else f'= {value:.15g}'}")
    return OK


def _shown(entity: dict[str, str | None]) -> str:
    return ", ".join(f"any {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items())
