"""The pages: where each is, what it may be asked, and what shows it. The API, its OpenAPI document and the tests are
made of this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.console.access.trail import KINDS as KINDS_OF_LINES
from ottla.console.asking import Asking, Invalid
from ottla.console.decoding import FORMATS
from ottla.console.groups import KINDS
from ottla.console.parameters import Parameter
from ottla.console.views import (
    all_settings,
    audit,
    brokers,
    groups,
    hanging,
    messages,
    moves,
    overview,
    pipelines,
    plots,
    rights,
    schemas,
    security,
    sql,
    tail,
    topic,
    topics,
    transactions,
)
from ottla.security.explained import KINDS as KINDS_OF_RESOURCES

API: Final = "/api/v1"
PLACES_MAX: Final = 4_000
OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True)
class Page:
    """A page at `path`, and the same data as JSON at `API` and `path`."""

    name: str
    path: str
    what: str
    view: Callable[[Asking], Any]
    answer: type
    template: str
    query: Sequence[Parameter] = ()
    section: str = ""
    """The entry of the navigation that it belongs to."""

    @property
    def api_path(self) -> str:
        return API + (f"/{self.name}" if self.path == "/" else self.path.replace(":any}", "}"))

    @property
    def inside(self) -> list[Parameter]:
        """Parameters of the path."""
        return [PATH[each] for each in PATH if f"{{{each}}}" in self.path or f"{{{each}:any}}" in self.path]

    def parameters(self, path: Mapping[str, str], query: Mapping[str, str]) -> dict[str, str | int]:
        """Values of all parameters. Raises Invalid, also for one that the page does not have."""
        known = {each.name for each in self.query}
        for name in query:
            if name not in known:
                raise Invalid(f"there is no parameter {name}; known: {', '.join(sorted(known)) or 'none'}")
        found = {each.name: each.parse(path[each.name]) for each in self.inside}
        return {**found, **{each.name: each.parse(query.get(each.name)) for each in self.query}}


PATH: Final = {
    "topic": Parameter("topic", "A topic's name.", is_required=True),
    "group": Parameter("group", "A group's id.", is_required=True),
    "subject": Parameter("subject", "A subject's name.", is_required=True),
    "broker": Parameter("broker", "A broker's id.", low=0, high=2**31 - 1, is_required=True),
}
_SEARCH: Final = Parameter("q", "Only what has this text in its name.")
_PAGE: Final = Parameter("page", "The page, from 1 on.", default=1, low=1, high=10**6)
_ORDER: Final = Parameter("order", "The direction of sorting.", ("asc", "desc"), "asc")
_SECONDS: Final = Parameter("seconds", "How long to read at most.", default=5, low=1, high=30)
_MESSAGES: Final = (
    Parameter("from", "Where to begin: the end reads backward, newest first.", messages.POSITIONS, "end"),
    Parameter("offset", "First offset, with from=offset.", default=0, low=0, high=OFFSET_MAX),
    Parameter("time", "First moment, with from=time: an ISO time, in UTC unless it has a zone."),
    Parameter("partition", "Only this partition.", low=0, high=2**31 - 1),
    Parameter("limit", "How many records.", default=50, low=1, high=200),
    Parameter("q", "Only records that have this text."),
    Parameter("in", "Where to search.", ("any", "key", "value", "header"), "any"),
    _SECONDS,
    Parameter("format", "How bytes are shown; auto decodes by the registry, else JSON, text or hex.", FORMATS, "auto"),
    Parameter(
        "isolation", "uncommitted shows records of open and aborted transactions too.", ("committed", "uncommitted"),
        "committed",
    ),
    Parameter("at", "Go on forward from these offsets: PARTITION:OFFSET,...", length_max=PLACES_MAX),
    Parameter("before", "Go on backward from before these offsets: PARTITION:OFFSET,...", length_max=PLACES_MAX),
    Parameter("run", "An id of 8 to 64 letters and digits, by which the reading can be looked at and stopped."),
)  # fmt: skip
_TAIL: Final = tuple(each for each in _MESSAGES if each.name in ("partition", "q", "in", "format", "isolation"))
_SQL: Final = (
    Parameter("sql", "A statement that reads, in DuckDB's SQL; each topic is a table.", length_max=sql.STATEMENT_MAX),
    Parameter("from", "Where to begin in every topic.", sql.STARTS, "begin"),
    Parameter("last", "With from=last: how many records of each partition.", default=10_000, low=1, high=10**12),
    Parameter("time", "With from=time: an ISO time, in UTC unless it has a zone."),
    Parameter("keys", "The format of keys.", sql.FORMATS, "string"),
    Parameter("values", "The format of values; fields are columns such as value.name.", sql.FORMATS, "json"),
    Parameter("seconds", "How long to run at most.", default=10, low=1, high=30),
    Parameter("run", "An id of 8 to 64 letters and digits, by which the query can be looked at and stopped."),
)  # fmt: skip

PAGES: Final = (
    Page("overview", "/", "The cluster's health and its nodes.", overview.overview, overview.Overview,
         "overview.html", section="overview"),
    Page("topics", "/topics", "All topics, by pages.", topics.topics, topics.Topics, "topics.html",
         (_SEARCH, Parameter("sort", "The column to sort by.", topics.SORTS, "name"), _ORDER, _PAGE,
          Parameter("internal", "Whether internal topics are listed.", ("no", "yes"), "no")), "topics"),
    Page("topic", "/topics/{topic}", "One topic: partitions, settings, readers, producers.", topic.topic,
         topic.TopicPage, "topic.html", section="topics"),
    Page("messages", "/topics/{topic}/messages", "Records of a topic.", messages.messages, messages.Messages,
         "messages.html", _MESSAGES, "topics"),
    Page("groups", "/groups", "All groups, by pages.", groups.groups, groups.GroupList, "groups.html",
         (_SEARCH, Parameter("kind", "Only groups of this kind.", ("", *KINDS)),
          Parameter("state", "Only groups in this state."),
          Parameter("sort", "The column to sort by.", groups.SORTS, "name"), _ORDER, _PAGE), "groups"),
    Page("group", "/groups/{group:any}", "One group: members, and how far it is in each partition.", groups.group,
         groups.GroupPage, "group.html", section="groups"),
    Page("transactions", "/transactions", "Transactions, those that hang first.", transactions.transactions,
         transactions.Transactions, "transactions.html",
         (_SEARCH, Parameter("state", "Open ones, or all.", transactions.STATES, "open"), _PAGE), "transactions"),
    Page("security", "/security", "Users, ACLs and quotas.", security.security, security.SecurityPage,
         "security.html", (_SEARCH, _PAGE), "security"),
    Page("broker", "/brokers/{broker}", "One broker: disks and settings.", brokers.broker, brokers.BrokerPage,
         "broker.html", section="overview"),
    Page("subjects", "/schemas", "Subjects of the schema registry.", schemas.subjects, schemas.Subjects,
         "subjects.html", (_SEARCH, _PAGE), "schemas"),
    Page("subject", "/schemas/{subject:any}", "Versions of one subject.", schemas.subject, schemas.Subject,
         "subject.html",
         (Parameter("before", "The version that another is compared with; the one before it.", low=1, high=2**31 - 1),
          Parameter("after", "The version that is compared; the newest.", low=1, high=2**31 - 1)), "schemas"),
    # What is watched:
    Page("tail", "/topics/{topic}/tail", "The newest records of a topic; its events tell of further ones.", tail.tail,
         tail.TailPage, "tail.html",
         (*_TAIL, Parameter("limit", "How many records.", default=20, low=1, high=200)), "topics"),
    Page("group_by_id", "/group", "One group by its id, also one that no path can name: empty, . or ..", groups.group,
         groups.GroupPage, "group.html", (Parameter("group", "The group's id.", is_required=True),), "groups"),
    Page("hanging", "/hanging", "Transactions that hang: open in a partition but unknown to their coordinator.",
         hanging.hanging, hanging.HangingPage, "hanging.html",
         (Parameter("topic", "Only this topic."),
          Parameter("older", "Minutes since the transaction last wrote.", default=15, low=0, high=10**6)),
         "transactions"),
    Page("rights", "/rights", "Why a user may do something or not.", rights.rights, rights.RightsPage, "rights.html",
         (Parameter("user", "A name such as alice."),
          Parameter("operation", "What the user asks for.", tuple(rights.OPERATIONS), "read"),
          Parameter("resource", "The kind of resource.", tuple(KINDS_OF_RESOURCES), "topic"),
          Parameter("name", "The resource's name; not for the cluster."),
          Parameter("host", "The client's address."),
          Parameter("line", "A line of an authorizer's log or of the audit log, in place of the others.",
                    length_max=4_000)), "security"),
    Page("audit", "/audit", "The audit log: who logged in, read records and acted. Without the right to see all lines, "
         "those of the user.", audit.audit, audit.AuditPage, "audit.html",
         (Parameter("q", "Only lines that have this text."), Parameter("user", "Only lines of this user."),
          Parameter("kind", "Only lines of this kind.", ("", *KINDS_OF_LINES)),
          Parameter("outcome", "Only lines with this outcome."), _PAGE), "security"),
    Page("moves", "/moves", "Partitions whose replicas are being moved.", moves.moves, moves.Moves, "moves.html",
         (_PAGE,), "overview"),
    Page("sql", "/sql", "A query in SQL over topics, which the console runs beside the brokers.", sql.sql, sql.SqlPage,
         "sql.html",
         (*_SQL, Parameter("rows", "How many rows.", default=100, low=1, high=sql.ROWS_MAX),
          Parameter("plot", "How a column is drawn over another.", plots.KINDS, "auto"),
          Parameter("x", "The column across; one that fits if it is empty."),
          Parameter("y", "The column with the heights; one that fits if it is empty.")), "sql"),
    Page("pipelines", "/pipelines", "Pipelines that have run on the console's machine.", pipelines.pipelines,
         pipelines.PipelinesPage, "pipelines.html", section="pipelines"),
    Page("mirror", "/mirror", "What this cluster mirrors of another one.", pipelines.mirror, pipelines.MirrorPage,
         "mirror.html",
         (Parameter("source", "The other cluster's name; the first one if it is empty."), _SEARCH, _PAGE), "pipelines"),
    Page("settings", "/settings", "Settings of all brokers, and which differ.", all_settings.all_settings,
         all_settings.SettingsPage, "settings.html",
         (_SEARCH, Parameter("show", "set: what was set or differs.", all_settings.SHOWN, "set"), _PAGE), "settings"),
)  # fmt: skip

DOWNLOAD: Final = Page(
    "content", "/topics/{topic}/content", "The whole key or value of one record, as a file.", messages.content,
    messages.Content, "",
    (Parameter("partition", "The record's partition.", low=0, high=2**31 - 1, is_required=True),
     Parameter("offset", "The record's offset.", low=0, high=OFFSET_MAX, is_required=True),
     Parameter("part", "Which part of it.", ("key", "value"), "value"), _SECONDS),
    "topics",
)  # fmt: skip
QUERIED: Final = Page(
    "sql_file", "/sql/file", "The rows of a query in SQL, as a file.", sql.file, messages.Content, "",
    (*_SQL, Parameter("form", "CSV, or an object a line.", ("csv", "json"), "csv")), "sql",
)  # fmt: skip
FILES: Final = (DOWNLOAD, QUERIED)
EVENTS: Final = Page(
    "tail_events", "/topics/{topic}/tail/events", "Records of a topic as they are written, as server-sent events.",
    tail.tail, tail.TailPage, "",
    (*_TAIL, *(each for each in _MESSAGES if each.name == "at"),
     Parameter("limit", "Not used.", default=20, low=1, high=200)),
    "topics",
)  # fmt: skip
SECTIONS: Final[Sequence[tuple[str, str, str]]] = (
    ("overview", "/", "Overview"), ("topics", "/topics", "Topics"), ("groups", "/groups", "Groups"),
    ("transactions", "/transactions", "Transactions"), ("sql", "/sql", "SQL"), ("pipelines", "/pipelines", "Pipelines"),
    ("security", "/security", "Security"), ("schemas", "/schemas", "Schemas"), ("settings", "/settings", "Settings"),
)  # fmt: skip
