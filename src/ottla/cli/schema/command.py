"""`ottla schema ...`: what a schema registry has, and changes to it."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.options import AsJson, Flag
from ottla.cli.output import bold, dim, plural, print_json, print_table, visible
from ottla.cli.schema.access import DEFAULT_URL, RegistryUrl, connected, schema_of, shown_text
from ottla.cli.values import Count, FilePath, SettingName, Text

if TYPE_CHECKING:
    from ottla.schemas.client import Registry

FORBIDDEN = 403

app = App(name="schema", help="List, show, check, register and compare schemas of a schema registry.", sort_key=8)

Type = Annotated[
    Literal["avro", "json-schema", "protobuf"] | None,
    Parameter(help="Type of the schema. Default: detected from the file's name (.avsc, .proto) or its content."),
]
References = Annotated[
    list[Text] | None,
    Parameter(
        negative="",
        consume_multiple=False,
        help="A schema that this one references, as NAME=SUBJECT:VERSION; may be repeated.",
    ),
]
Version = Annotated[Count | None, Parameter(help="The version. Default: the latest.")]


@app.command(name="list")
def list_(
    start: Text = "", /, *, json: AsJson = False, registry: RegistryUrl = DEFAULT_URL, client_config: ClientFile = None
) -> int:
    """List subjects with schema type, versions, latest id and compatibility level.

    Parameters
    ----------
    start
        Only subjects whose names start with this text.
    """
    with connected(registry) as client:
        rows: list[dict[str, Any]] = []
        for subject in client.subjects(start):
            latest, versions = client.version(subject), client.versions(subject)
            rows.append(
                {
                    "subject": subject,
                    "type": latest.schema.type,
                    "versions": versions,
                    "id": latest.id,
                    "compatibility": _compatibility(client, subject),
                }
            )
    if json:
        print_json(rows)
        return OK
    print_table(
        ("SUBJECT", "TYPE", "VERSIONS", "ID>", "COMPATIBILITY"),
        [
            (row["subject"], row["type"], _ranges(row["versions"]), row["id"], row["compatibility"] or "?")
            for row in rows
        ],
    )
    return OK


def _compatibility(client: Registry, subject: str) -> str | None:
    """The level of a subject; None for a user who may see its schemas and not its settings."""
    from ottla.schemas.client import RegistryError

    try:
        return client.compatibility(subject)
    except RegistryError as error:
        if error.http_status == FORBIDDEN:
            return None
        raise


def _ranges(versions: list[int]) -> str:
    """[1, 2, 3, 5] as 1-3, 5."""
    found: list[list[int]] = []
    for number in versions:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


@app.command
def show(
    subject: SettingName | None = None,
    /,
    *,
    version: Version = None,
    id: Annotated[Count | None, Parameter(help="The schema with this id, in any subject.")] = None,
    json: AsJson = False,
    registry: RegistryUrl = DEFAULT_URL,
    client_config: ClientFile = None,
) -> int:
    """Show a schema: the latest of a subject, one of its versions, or the one with an id.

    Parameters
    ----------
    subject
        A name from `ottla schema list`; most are called TOPIC-value or TOPIC-key.
    """
    if (subject is None) == (id is None) or (version is not None and subject is None):
        raise CommandFailed("give a SUBJECT, with or without --version, or --id", MISUSED)
    with connected(registry) as client:
        if subject is not None:
            found = client.version(subject, version or "latest")
            schema, facts = found.schema, {"subject": found.subject, "version": found.version, "id": found.id}
        else:
            schema, facts = client.by_id(id or 0), {"id": id}
    if json:
        print_json({**facts, "type": schema.type, **schema.body()})
        return OK
    words = ", ".join(f"{name} {value}" for name, value in facts.items())
    print(dim(visible(f"{words}, {schema.type}")))
    for each in schema.references:
        print(dim(visible(f"{each.name} is {each.subject} version {each.version}")))
    print(visible_lines(shown_text(schema.text, schema.type)))
    return OK


@app.command
def check(
    subject: SettingName,
    file: FilePath,
    /,
    *,
    version: Version = None,
    type: Type = None,
    reference: References = None,
    json: AsJson = False,
    registry: RegistryUrl = DEFAULT_URL,
    client_config: ClientFile = None,
) -> int:
    """Check whether a schema could be the next version of a subject. If not, prints why and exits with 1.

    Parameters
    ----------
    subject
        The subject; one that does not exist accepts any schema.
    file
        The schema, - for standard input.
    version
        The version to compare with; those that the subject's level asks for unless given.
    """
    schema = schema_of(file, type, reference)
    with connected(registry) as client:
        problems = client.problems(subject, schema, None if version is None else str(version))
        level = client.compatibility(subject)
    if json:
        print_json({"subject": subject, "compatible": not problems, "level": level, "problems": problems})
        return FAILED if problems else OK
    if problems:
        reasons = "".join(f"\n  {visible(each)}" for each in _reasons(problems))
        raise CommandFailed(f"not compatible with {subject} ({level}):{reasons}")
    print(f"compatible with {visible(subject)} ({level})")
    return OK


@app.command
def register(
    subject: SettingName,
    file: FilePath,
    /,
    *,
    type: Type = None,
    reference: References = None,
    normalize: Flag = False,
    json: AsJson = False,
    registry: RegistryUrl = DEFAULT_URL,
    client_config: ClientFile = None,
) -> int:
    """Register a schema as the next version of a subject; if the subject has it already, nothing changes.

    Parameters
    ----------
    subject
        The subject; serializers look for TOPIC-value and TOPIC-key by default.
    file
        The schema, - for standard input.
    normalize
        Normalize before comparing: schemas that differ only in an order without meaning are the same.
    """
    schema = schema_of(file, type, reference)
    with connected(registry) as client:
        schema_id = client.register(subject, schema, normalize=normalize)
        found = client.lookup(subject, schema, normalize=normalize)
    if json:
        print_json({"subject": subject, "version": found.version, "id": schema_id, "type": found.schema.type})
    else:
        print(f"{visible(subject)}: version {found.version}, id {schema_id}")
    return OK


@app.command
def diff(
    subject: SettingName,
    /,
    *,
    from_: Annotated[Count | None, Parameter(name="--from")] = None,
    to: Count | None = None,
    json: AsJson = False,
    registry: RegistryUrl = DEFAULT_URL,
    client_config: ClientFile = None,
) -> int:
    """Show what differs between two versions of a subject, and whether the newer one reads what the older one wrote.

    Parameters
    ----------
    subject
        A name from `ottla schema list`.
    from_
        The older version. Default: the one before the newer.
    to
        The newer version. Default: the latest.
    """
    with connected(registry) as client:
        newer = client.version(subject, to or "latest")
        if from_ is None:
            before = [number for number in client.versions(subject) if number < newer.version]
            if not before:
                raise CommandFailed(f"{subject} has no version before {newer.version}")
            from_ = max(before)
        older = client.version(subject, from_)
        problems = client.problems(subject, newer.schema, str(older.version))
        level = client.compatibility(subject)
    names = [f"{subject} version {each.version}" for each in (older, newer)]
    old, new = (shown_text(each.schema.text, each.schema.type).splitlines() for each in (older, newer))
    lines = list(difflib.unified_diff(old, new, names[0], names[1], n=1000, lineterm=""))
    if json:
        fields: dict[str, Any] = {
            "subject": subject,
            "from": older.version,
            "to": newer.version,
            "level": level,
            "compatible": not problems,
            "problems": problems,
            "diff": lines,
        }
        print_json(fields)
        return OK
    for line in lines or [f"{names[0]} and version {newer.version} are identical"]:
        print(bold(visible(line)) if line[:1] in "+-" else visible(line))
    reasons = _reasons(problems)
    print(dim(visible(f"{level}: {plural(len(reasons), 'problem') if reasons else 'compatible'}")))
    for reason in reasons:
        print(visible(f"  {reason}"))
    return OK


_PROBLEM = re.compile(r"\{errorType:'(?P<type>[^']*)', description:'(?P<says>.*?)', additionalInfo:'.*'\}", re.DOTALL)


def _reasons(problems: list[str]) -> list[str]:
    """Problems in a registry's own words, without the old schema and its settings, which it repeats each time."""
    found = []
    for problem in problems:
        match = _PROBLEM.fullmatch(problem)
        if match is not None:
            found.append(f"{match['says']} ({match['type']})")
        elif not problem.startswith(("{oldSchema", "{validateFields", "{compatibility")):
            found.append(problem)
    return found or problems


def visible_lines(text: str) -> str:
    """Lines of a text that somebody else wrote, without what a terminal would take for orders."""
    return "\n".join(visible(line.expandtabs()) for line in text.split("\n"))
