"""What somebody comes to the console for, as data: where each task begins, and what is clicked, typed and seen.

`{m}` in a text is the way of walking, mouse or keys, so that each walk has topics and groups of its own. Tests walk the
rows, and `tasks_page.py` writes them into docs/console.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Click(NamedTuple):
    """On the first link or button of that name; a page comes."""

    name: str
    role: str = "link"


class Fill(NamedTuple):
    label: str
    text: str


class Pick(NamedTuple):
    """An option of a list, by its word."""

    label: str
    option: str


class Download(NamedTuple):
    """A click after which a file comes."""

    name: str


class See(NamedTuple):
    """Not a step of the user: what must be there then."""

    text: str


class Write(NamedTuple):
    """Not a step of the user: a producer writes a record."""

    topic: str
    key: str


Step = Click | Fill | Pick | Download | See | Write


class Task(NamedTuple):
    name: str
    start: str
    """The page on which the user is."""
    steps: tuple[Step, ...]
    site: str = "node"
    """node: beside a real one; memory: a cluster in memory, one of whose brokers has died."""

    @property
    def count(self) -> int:
        """Steps of the user."""
        return sum(not isinstance(each, See | Write) for each in self.steps)


def press(name: str) -> Click:
    return Click(name, "button")


DONE: Final = See("Done.")
TASKS: Final = (
    Task("See what needs attention after a broker died", "/", (
        See("Needs attention"), Click("Topic stock: 1 partition without all in-sync copies."), See("1 not in sync"),
    ), "memory"),
    Task("Find out why a group lags", "/", (
        Click("Groups"), Click("Lag"), Click("lagging-{m}"), See("No member is in the group now"))),
    Task("Move a group's offsets, with a preview", "/groups/lagging-{m}", (
        Click("Move offsets"), Pick("To", "latest"), press("Show what will happen"), See("skips"),
        press("Move offsets"), DONE)),
    Task("See the first record that a group has not read", "/groups/waiting-{m}", (
        Click("5"), See("5"), See("1 read by nobody yet"))),
    Task("Find a record by its key and copy it to another topic", "/topics/orders-{m}", (
        Click("Messages"), Fill("Contains", "customer-7"), press("Show"),
        Click("Copy to a topic the record at offset 37"), Fill("To topic", "copies-{m}"), press("Copy a record"),
        DONE)),
    Task("Send a record again, edited", "/topics/orders-{m}/messages", (
        Click("Send again the record at offset 39"), Fill("Value", "corrected"), press("Write a record"), DONE)),
    Task("Write a record", "/topics/copies-{m}", (
        Click("Write a record"), Fill("Key", "k"), Fill("Value", "v"), press("Write a record"), DONE)),
    Task("Read records from an offset on", "/topics/orders-{m}/messages", (
        Pick("From", "an offset"), Fill("Offset", "38"), press("Show"), See("Offset 38"))),
    Task("Download the records that a search found", "/topics/orders-{m}/messages", (
        Fill("Contains", "customer-3"), press("Show"), Download("Download these records"))),
    Task("Watch new records with a filter", "/topics/orders-{m}", (
        Click("Live tail"), Fill("Contains", "customer-new"), press("Show"), See("Live: 0 new records"),
        Write("orders-{m}", "customer-new"), See("Live: 1 new records"))),
    Task("See which producers write to a topic", "/topics", (
        Fill("Name contains", "orders-{m}"), press("Search"), Click("orders-{m}"), See("Last sequence"))),
    Task("See which setting of a topic differs from its default", "/", (
        Click("Topics"), Click("kept-{m}"), See("set here"))),
    Task("Change how long a topic is kept", "/topics/copies-{m}", (
        Click("Change a setting"), Fill("Setting", "retention.ms"), Fill("New value", "3600000"),
        press("Show what will happen"), See("retention.ms"), press("Change a setting"), DONE)),
    Task("Create a topic", "/", (
        Click("Topics"), Click("Create a topic"), Fill("Topic", "made-{m}"), Fill("Partitions", "3"),
        press("Create a topic"), DONE)),
    Task("Add partitions to a topic", "/topics/grown-{m}", (
        Click("Add partitions"), Fill("Partitions", "4"), press("Add partitions"), DONE)),
    Task("Delete the oldest records of a topic", "/topics/emptied-{m}", (
        Click("Delete records"), Fill("Before", "5"), press("Show what will happen"),
        Fill("Type emptied-{m} to do it", "emptied-{m}"), press("Delete records"), DONE)),
    Task("Delete a topic", "/topics/old-{m}", (
        Click("Delete the topic"), Fill("Type old-{m} to do it", "old-{m}"), press("Delete the topic"), DONE)),
    Task("Delete a group", "/groups/gone-{m}", (
        Click("Delete the group"), Fill("Type gone-{m} to do it", "gone-{m}"), press("Delete the group"), DONE)),
    Task("Abort an open transaction", "/", (
        Click("Transactions"), Fill("Id contains", "stuck-{m}"), press("Search"),
        Click("Abort the transaction of stuck-{m}"), Fill("Type stuck-{m} to do it", "stuck-{m}"),
        press("Abort a transaction"), DONE)),
    Task("Find a hanging transaction and end it", "/transactions", (
        Click("Search all partitions for hanging transactions"), Fill("Topic", "hung-{m}"),
        Fill("Not written to for, in minutes", "0"), press("Search"), Click("Abort the transaction in hung-{m}-0"),
        Fill("Type hung-{m} to do it", "hung-{m}"), press("Abort a hanging transaction"), DONE)),
    Task("See why a user was denied", "/", (
        Click("Security"), Click("Why may a user do something, or not?"), Fill("User", "alice"),
        Fill("Name", "kept-{m}"), press("Ask"), See("DENY"))),
    Task("Add a user who may read a topic", "/security", (
        Click("Create a user, or set a password"), Fill("User", "new-{m}"), Fill("Password", "a-long-password"),
        press("Create a user, or set a password"), DONE, Click("Security"), Click("Create an ACL"),
        Fill("User", "new-{m}"), Pick("Operation", "read"), Fill("Name", "orders-{m}"), press("Create an ACL"), DONE)),
    Task("Delete a user", "/security", (
        Click("Delete the user leaver-{m}"), Fill("Type leaver-{m} to do it", "leaver-{m}"), press("Delete a user"),
        DONE)),
    Task("Limit how much a user may write", "/security", (
        Click("Set a quota"), Fill("User", "alice-{m}"), Fill("Value", "1000000"), press("Set a quota"), DONE)),
    Task("See how full the disks of a broker are", "/", (Click("1"), See("Free"), See("online"))),
    Task("Compare two versions of a schema", "/", (
        Click("Schemas"), Click("orders-{m}-value"), press("Compare"), See("From version 1 to version 2"))),
    Task("Register the next version of a schema", "/schemas/orders-{m}-value", (
        Click("Register the next version"), Fill("Schema", '"string"'), press("Show what will happen"))),
)  # fmt: skip
