"""Acts on settings that can change while the cluster runs: of a topic, a group, a broker, or all brokers."""

from __future__ import annotations

from typing import Any, Final

from ottla.client.requests import asked_settings, changed_settings
from ottla.client.secret_names import is_secret
from ottla.config.explained import BROKER, GROUP, TOPIC
from ottla.console.acts.act import Act, Change, Field, Plan, command, group_page, topic_page
from ottla.console.acts.topics import TOPIC as TOPIC_FIELD
from ottla.console.asking import Asking, Invalid
from ottla.console.brokers import Refused, ensure_none
from ottla.console.views.settings import SettingRow, rows_of
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey

VALUE_MAX: Final = 8_000
NAME: Final = Field("name", "The setting's name.", is_required=True, label="Setting", hint="retention.ms")
VALUE: Final = Field("value", "Its new value.", length_max=VALUE_MAX, label="New value")
HOW: Final = Field("how", "Set the value, or return to the default.", ("set", "reset"), "set", widget="choice",
                   label="What to do")  # fmt: skip


def topic(asking: Asking) -> Plan:
    name = asking.text("topic")
    return _plan(asking, TOPIC, name, f"of topic {name}", {"--topic": name}, topic_page(name))


def group(asking: Asking) -> Plan:
    name = asking.text("group")
    return _plan(asking, GROUP, name, f"of group {name}", {"--group": name}, group_page(name))


def broker(asking: Asking) -> Plan:
    number = asking.text("broker")
    if number == "":
        return _plan(asking, BROKER, "", "of all brokers", {"--all-brokers": None}, ("/", "Overview"))
    return _plan(
        asking, BROKER, number, f"of broker {number}", {"--broker": number}, (f"/brokers/{number}", f"Broker {number}")
    )


def _plan(asking: Asking, kind: int, resource: str, whose: str, option: dict[str, Any], back: tuple[str, str]) -> Plan:
    setting, value, is_reset = asking.text("name"), asking.text("value"), asking.text("how") == "reset"
    if is_reset and value:
        raise Invalid("value must be empty where the setting returns to its default")
    node = int(resource) if kind == BROKER and resource else None
    warnings: list[str] = []
    known = _known(asking, kind, resource, setting, node, warnings)
    if is_secret(setting) or (known is not None and known.is_secret):
        raise Invalid(f"{setting} is a secret, and this page sets none: its value would be shown")

    def ask(validate_only: bool) -> None:
        wanted = {setting: None if is_reset else value}
        values = changed_settings(kind, resource, wanted, validate_only=validate_only)
        answer = asking.brokers.change(ApiKey.INCREMENTAL_ALTER_CONFIGS, values, node)
        for each in answer["responses"]:
            ensure_none(ApiKey.INCREMENTAL_ALTER_CONFIGS, each, resource or "all brokers")

    after = value
    if is_reset:
        after = "the default" if known is None or known.default is None else f"the default, {known.default}"
        told = command(asking, "config unset", [setting], option)
    else:
        told = command(asking, "config set", [f"{setting}={value}"], option)
    return Plan(
        f"{setting} {whose} {'returns to its default' if is_reset else 'is set'}.",
        lambda: ask(False),
        [Change(setting, None if known is None else known.value, after, "" if known is None else known.what)],
        told,
        warnings,
        f"{setting} is read when a broker starts: it cannot change while it runs."
        if known is not None and known.is_read_only
        else "",
        lambda: ask(True),
        back=back,
    )


def _known(
    asking: Asking, kind: int, resource: str, setting: str, node: int | None, warnings: list[str]
) -> SettingRow | None:
    """As it is now; None where the brokers do not tell."""
    values = asked_settings(kind, [resource], [setting], layers=True)
    ask = asking.brokers.ask_any if node is None else lambda key, given: asking.brokers.ask(node, key, given)
    try:
        rows = rows_of(ask(ApiKey.DESCRIBE_CONFIGS, values)["results"][0])
    except Refused as error:
        warnings.append(f"The present value is not known: {error}.")
        return None
    except KafkaError as error:
        warnings.append(f"The present value is not known: {error.message or error.code.name.upper()}.")
        return None
    return next((each for each in rows if each.name == setting), None)


ACTS: Final = (
    Act("configure-topic", "Change a setting", "A setting of one topic.", "AlterConfigs on the topic", topic,
        (TOPIC_FIELD, NAME, HOW, VALUE), "topic"),
    Act("configure-group", "Change a setting", "A setting of one group.", "AlterConfigs on the group", group,
        (Field("group", "A group's id.", is_required=True, label="Group"), NAME, HOW, VALUE), "group"),
    Act("configure-broker", "Change a setting", "A setting of one broker, or of all.", "AlterConfigs on the cluster",
        broker,
        (Field("broker", "A broker's id; all brokers if left out.", low=0, high=2**31 - 1, widget="number",
               label="Broker"), NAME, HOW, VALUE), "broker"),
)  # fmt: skip
