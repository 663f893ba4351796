"""The REST API of the schema registry over HTTP, against a broker: what Confluent's documentation says of each call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.testing import Broker, Registry

V1 = "application/vnd.schemaregistry.v1+json"


def record(*fields: str, name: str = "R") -> str:
    """An Avro schema; a field `a?` has a default."""
    rows = [{"name": each.rstrip("?"), "type": "int"} | ({"default": 0} if "?" in each else {}) for each in fields]
    return json.dumps({"type": "record", "name": name, "fields": rows}, separators=(",", ":"))


class Api:
    """Short forms of the calls."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=30)

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The answer's JSON; of an error its code."""
        answer = self.http.request(method, path, json=body, params=query)
        found = answer.json()
        if not answer.is_success:
            code = int(found["error_code"])
            assert answer.status_code == (code if code < 1000 else code // 100)
            assert found["message"]
            return code
        return found

    def register(self, subject: str, schema: str, **more: Any) -> Any:
        found = self.ask("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema, **more})
        return found["id"] if isinstance(found, dict) else found


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(group_initial_rebalance_delay_ms=0) as started:
        yield started


@pytest.fixture
def registry(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Registry]:
    """Each test has a topic of its own."""
    with Registry(broker.bootstrap, topic=f"schemas-{abs(hash(request.node.nodeid))}") as started:
        yield started


@pytest.fixture
def api(registry: Registry) -> Api:
    return Api(registry.url)


def test_registering(api: Api) -> None:
    assert api.ask("GET", "/subjects") == []
    assert api.register("s", record("a")) == 1
    assert api.register("s", record("a")) == 1, "the same again"
    assert api.register("s", f"  {record('a')}  ") == 1, "white space does not matter"
    assert api.register("t", record("a")) == 1, "the same schema has the same id in every subject"
    assert api.register("s", record("a", "b?")) == 2
    assert api.ask("GET", "/subjects") == ["s", "t"]
    assert api.ask("GET", "/subjects/s/versions") == [1, 2]
    found = api.ask("GET", "/subjects/s/versions/2")
    assert (found["subject"], found["version"], found["id"], found["schema"]) == ("s", 2, 2, record("a", "b?"))
    assert api.ask("GET", "/subjects/s/versions/latest") == api.ask("GET", "/subjects/s/versions/-1") == found
    assert api.http.get("/subjects/s/versions/1/schema").text == record("a")
    assert api.ask("GET", "/schemas/ids/1")["schema"] == record("a")
    assert api.http.get("/schemas/ids/1/schema").text == record("a")
    assert api.ask("GET", "/schemas/ids/1/subjects") == ["s", "t"]
    assert api.ask("GET", "/schemas/ids/1/versions") == [
        {"subject": "s", "version": 1},
        {"subject": "t", "version": 1},
    ]
    assert api.ask("GET", "/schemas/ids/1", fetchMaxId="true")["maxId"] == 2
    assert api.ask("GET", f"/schemas/guids/{found['guid']}")["schema"] == record("a", "b?")
    assert api.ask("GET", f"/schemas/guids/{found['guid']}/ids") == [{"context": ".", "id": 2}]
    assert [each["version"] for each in api.ask("GET", "/schemas", subjectPrefix="s")] == [1, 2]
    assert [each["version"] for each in api.ask("GET", "/schemas", latestOnly="true")] == [2, 1]


def test_looking_up(api: Api) -> None:
    api.register("s", record("a"))
    found = api.ask("POST", "/subjects/s", {"schema": record("a")})
    assert (found["subject"], found["version"], found["id"]) == ("s", 1, 1)
    assert api.ask("POST", "/subjects/s", {"schema": record("b")}) == 40403
    assert api.ask("POST", "/subjects/t", {"schema": record("a")}) == 40401


def test_what_is_refused(api: Api) -> None:
    api.register("s", record("a"))
    assert api.register("s", record("a", "b")) == 40901
    assert api.register("s", "nothing") == 42201
    assert api.register("t", "") == 42201
    assert api.register("s", record("a"), schemaType="OTHER") == 42201
    assert api.register("__EMPTY", record("a")) == 42208
    assert api.ask("GET", "/subjects/t/versions") == 40401
    assert api.ask("GET", "/subjects/t/versions/1") == 40401
    assert api.ask("GET", "/subjects/s/versions/7") == 40402
    for version in ("0", "none", "-2", "99999999999"):
        assert api.ask("GET", f"/subjects/s/versions/{version}") == 42202
    assert api.ask("GET", "/schemas/ids/77") == 40403
    assert api.ask("GET", "/schemas/ids/x") == 404
    assert api.ask("GET", "/schemas/guids/x") == 40403
    assert api.ask("PUT", "/config", {"compatibility": "SOME"}) == 42203
    assert api.ask("GET", "/config/t") == 40408
    assert api.ask("PUT", "/mode", {"mode": "SOME"}) == 42204
    assert api.ask("GET", "/mode/t") == 40409
    assert api.ask("DELETE", "/config/t") == 40401
    assert api.ask("POST", "/subjects/s/versions", {"schema": record("a"), "unknown": 1}) == 422
    assert api.ask("GET", "/nothing") == 404
    assert api.ask("PUT", "/subjects") == 405


def test_texts_of_errors(api: Api) -> None:
    api.register("s", record("a"))

    def message(method: str, path: str, body: Any = None) -> str:
        return str(api.http.request(method, path, json=body).json()["message"])

    assert message("GET", "/subjects/t/versions") == "Subject 't' not found."
    assert message("GET", "/subjects/s/versions/7") == "Version 7 not found."
    assert message("GET", "/schemas/ids/77") == "Schema 77 not found"
    assert message("GET", "/subjects/s/versions/0") == (
        "The specified version '0' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"'
    )
    assert message("POST", "/subjects/s/versions", {"schema": record("a", "b")}).startswith(
        'Schema being registered is incompatible with an earlier schema for subject "s", details: '
        "[{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path '/fields/1' in the new "
        "schema has no default value and is missing in the old schema', additionalInfo:'b'}, {oldSchemaVersion: 1}"
    )


def test_http(api: Api) -> None:
    answer = api.http.get("/subjects")
    assert answer.headers["content-type"] == V1
    accept = "application/json"
    assert api.http.get("/subjects", headers={"Accept": accept}).headers["content-type"] == accept
    assert api.http.post("/subjects/s/versions", data={"schema": "1"}).json()["error_code"] == 415
    body = b'{"schema": '
    assert api.http.post("/subjects/s/versions", content=body, headers={"Content-Type": V1}).status_code == 400
    octets = {"Content-Type": "application/octet-stream"}
    content = json.dumps({"schema": record("a")}).encode()
    assert api.http.post("/subjects/s/versions", content=content, headers=octets).json()["id"] == 1
    newer = {"Confluent-Accept-Unknown-Properties": "true"}
    both = {"schema": record("a"), "unknown": 1}
    assert api.http.post("/subjects/s/versions", json=both, headers=newer).json()["id"] == 1
    assert api.http.get("/subjects/").json() == ["s"]
    assert api.http.get("/").json() == {}


def test_names_of_all_kinds(api: Api) -> None:
    for number, name in enumerate(["a/b", "a b", "ä", "a%2Fb", "a?b", "a:b", "a.b"], 1):
        assert api.register(name, record("a", name=f"R{number}")) == number
        assert api.ask("GET", f"/subjects/{quote(name, safe='')}/versions/1")["subject"] == name


def test_deleting_a_version(api: Api) -> None:
    api.register("s", record("a"))
    api.register("s", record("a", "b?"))
    assert api.ask("DELETE", "/subjects/s/versions/2", permanent="true") == 40407
    assert api.ask("DELETE", "/subjects/s/versions/2") == 2
    assert api.ask("DELETE", "/subjects/s/versions/2") == 40406
    assert api.ask("GET", "/subjects/s/versions") == [1]
    assert api.ask("GET", "/subjects/s/versions", deleted="true") == [1, 2]
    assert api.ask("GET", "/subjects/s/versions", deletedOnly="true") == [2]
    assert api.ask("GET", "/subjects/s/versions", deletedAsNegative="true") == [1, -2]
    assert api.ask("GET", "/subjects/s/versions/2") == 40402
    assert api.ask("GET", "/subjects/s/versions/2", deleted="true")["deleted"] is True
    assert api.ask("GET", "/schemas/ids/2")["schema"] == record("a", "b?"), "what was written with it stays readable"
    assert api.ask("GET", "/schemas/ids/2/subjects") == []
    assert api.ask("GET", "/schemas/ids/2/subjects", deleted="true") == ["s"]
    assert api.ask("POST", "/subjects/s", {"schema": record("a", "b?")}) == 40403
    assert api.ask("POST", "/subjects/s", {"schema": record("a", "b?")}, deleted="true")["version"] == 2
    assert api.register("s", record("a", "b?")) == 2, "registered again it has the same id,"
    assert api.ask("GET", "/subjects/s/versions", deleted="true") == [1, 3], "in the place of the deleted one"
    assert api.ask("DELETE", "/subjects/s/versions/latest") == 3
    assert api.ask("DELETE", "/subjects/s/versions/3", permanent="true") == 3
    assert api.ask("GET", "/schemas/ids/2") == 40403
    assert api.ask("DELETE", "/subjects/s/versions/3", permanent="true") == 40402


def test_deleting_a_subject(api: Api) -> None:
    api.register("s", record("a"))
    api.register("s", record("a", "b?"))
    api.ask("PUT", "/config/s", {"compatibility": "NONE"})
    assert api.ask("DELETE", "/subjects/s", permanent="true") == 40405
    assert api.ask("DELETE", "/subjects/s") == [1, 2]
    assert api.ask("DELETE", "/subjects/s") == 40404
    assert api.ask("DELETE", "/subjects/t") == 40401
    assert api.ask("GET", "/subjects") == []
    assert api.ask("GET", "/subjects", deleted="true") == ["s"]
    assert api.ask("GET", "/subjects", deletedOnly="true") == ["s"]
    assert api.register("s", record("c")) == 3
    assert api.ask("GET", "/subjects/s/versions") == [3], "numbers go on"
    assert api.ask("DELETE", "/subjects/s") == [3]
    assert api.ask("DELETE", "/subjects/s", permanent="true") == [1, 2, 3]
    assert api.ask("GET", "/subjects", deleted="true") == []
    assert api.ask("GET", "/config/s") == 40408, "its configuration goes with it"
    assert api.register("s", record("d")) == 4
    assert api.ask("GET", "/subjects/s/versions") == [1]


LEVELS = {"NONE": True, "BACKWARD": False, "FORWARD": True, "FULL": False}
"""Whether a field without a default may be added."""


@pytest.mark.parametrize("level", LEVELS)
def test_levels(api: Api, level: str) -> None:
    api.register("s", record("a"))
    assert api.ask("PUT", "/config/s", {"compatibility": level.lower()}) == {"compatibility": level}
    assert api.ask("GET", "/config/s") == {"compatibilityLevel": level}
    path = "/compatibility/subjects/s/versions"
    asked = {"schema": record("a", "b")}
    found = api.ask("POST", f"{path}/latest", asked, verbose="true")
    assert found["is_compatible"] == LEVELS[level]
    assert bool(found["messages"]) != LEVELS[level]
    assert api.ask("POST", path, asked) == api.ask("POST", f"{path}/1", asked) == {"is_compatible": LEVELS[level]}
    assert (api.register("s", record("a", "b")) == 2) == LEVELS[level]


def test_a_transitive_level(api: Api) -> None:
    api.ask("PUT", "/config/s", {"compatibility": "BACKWARD"})
    api.register("s", record("a"))
    api.register("s", record("a", "b?"))
    asked = {"schema": record("a", "b")}
    assert api.ask("POST", "/compatibility/subjects/s/versions", asked) == {"is_compatible": True}
    api.ask("PUT", "/config/s", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert api.ask("POST", "/compatibility/subjects/s/versions", asked) == {"is_compatible": False}


def test_compatibility_with_what_is_not_there(api: Api) -> None:
    path = "/compatibility/subjects/s/versions"
    assert api.ask("POST", f"{path}/latest", {"schema": record("a")}) == {"is_compatible": True}
    assert api.ask("POST", f"{path}/3", {"schema": record("a")}) == 40402
    assert api.ask("POST", f"{path}/latest", {"schema": "nothing"}) == 42201
    found = api.ask("POST", f"{path}/latest", {"schema": "nothing"}, verbose="true")
    assert found["is_compatible"] is False


def test_configuration(api: Api) -> None:
    assert api.ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert api.ask("PUT", "/config", {"compatibility": "FULL", "normalize": True}) == {
        "compatibility": "FULL",
        "normalize": True,
    }
    assert api.ask("GET", "/config/s", defaultToGlobal="true") == {"compatibilityLevel": "FULL", "normalize": True}
    assert api.ask("PUT", "/config", {"normalize": None}) == {"compatibility": "FULL"}
    api.ask("PUT", "/config/s", {"compatibilityGroup": "major"})
    assert api.ask("DELETE", "/config/s") == {"compatibilityLevel": "BACKWARD", "compatibilityGroup": "major"}
    assert api.ask("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert api.ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}


def test_groups_of_compatible_versions(api: Api) -> None:
    api.ask("PUT", "/config/s", {"compatibilityGroup": "major"})
    assert api.register("s", record("a"), metadata={"properties": {"major": "1"}}) == 1
    assert api.register("s", record("b"), metadata={"properties": {"major": "2"}}) == 2
    assert api.register("s", record("a", "c"), metadata={"properties": {"major": "1"}}) == 40901
    assert api.ask("GET", "/subjects/s/metadata", key="major", value="1")["id"] == 1


def test_defaults_and_overrides_of_metadata(api: Api) -> None:
    api.ask(
        "PUT",
        "/config/s",
        {
            "defaultMetadata": {"properties": {"owner": "nobody", "team": "x"}},
            "overrideMetadata": {"properties": {"checked": "yes"}},
        },
    )
    api.register("s", record("a"), metadata={"properties": {"owner": "me", "checked": "no"}})
    properties = api.ask("GET", "/subjects/s/versions/1")["metadata"]["properties"]
    assert properties == {"owner": "me", "team": "x", "checked": "yes"}
    api.register("s", record("a", "b?"))
    assert api.ask("GET", "/subjects/s/versions/2")["metadata"]["properties"] == properties, "the previous one's"


def test_rules_are_kept(api: Api) -> None:
    rules: Any = {
        "domainRules": [{"name": "check", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "true"}]
    }
    api.register("s", record("a"), ruleSet=rules)
    rules["domainRules"][0]["disabled"] = False
    assert api.ask("GET", "/schemas/ids/1")["ruleSet"] == rules
    twice = {"domainRules": rules["domainRules"] * 2}
    assert api.register("t", record("a"), ruleSet=twice) == 42210


def test_an_alias(api: Api) -> None:
    api.register("long-name", record("a"))
    api.ask("PUT", "/config/short", {"alias": "long-name"})
    assert api.ask("GET", "/subjects/short/versions/latest")["subject"] == "long-name"
    assert api.ask("POST", "/subjects/short", {"schema": record("a")})["id"] == 1


def test_modes(api: Api) -> None:
    assert api.ask("GET", "/mode") == {"mode": "READWRITE"}
    api.register("s", record("a"))
    assert api.ask("PUT", "/mode/s", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert api.ask("GET", "/mode/s") == {"mode": "READONLY"}
    assert api.register("s", record("a")) == 1, "it is there already"
    assert api.register("s", record("a", "b?")) == 42205
    assert api.ask("DELETE", "/subjects/s") == 42205
    assert api.ask("PUT", "/config/s", {"compatibility": "NONE"}) == 42205
    assert api.register("t", record("a", "b?")) == 2
    assert api.ask("DELETE", "/mode/s") == {"mode": "READONLY"}
    assert api.ask("DELETE", "/mode/s") == 40401
    assert api.ask("GET", "/mode/s", defaultToGlobal="true") == {"mode": "READWRITE"}
    api.ask("PUT", "/mode/s", {"mode": "READWRITE"})
    api.ask("PUT", "/mode", {"mode": "READONLY"})
    assert api.register("s", record("a", "b?")) == 2, "its own mode goes first"
    api.ask("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})
    assert api.register("s", record("a", "c?")) == 42205, "but not before this one"


def test_importing(api: Api) -> None:
    api.register("s", record("a"))
    assert api.register("t", record("a"), id=7) == 42205
    assert api.ask("PUT", "/mode/s", {"mode": "IMPORT"}) == 42205
    assert api.ask("PUT", "/mode/s", {"mode": "IMPORT"}, force="true") == {"mode": "IMPORT"}
    assert api.ask("PUT", "/mode/t", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert api.register("t", record("x"), id=70, version=5) == 70
    assert api.register("t", record("y"), id=71, version=3) == 71, "in any order, compatible or not"
    assert api.ask("GET", "/subjects/t/versions") == [3, 5]
    assert api.register("t", record("z"), id=70, version=9) == 42205, "an id stays what it is"
    assert api.register("t", record("z")) == 42205
    api.ask("PUT", "/mode/t", {"mode": "READWRITE"})
    assert api.register("u", record("z")) == 72


def test_contexts(api: Api) -> None:
    assert api.ask("GET", "/contexts") == ["."]
    assert api.register("s", record("a")) == 1
    assert api.register(":.c:s", record("b")) == 1, "ids are of a context"
    assert api.register(":.c:t", record("c")) == 2
    assert api.ask("GET", "/contexts") == [".", ".c"]
    assert api.ask("GET", "/subjects") == [":.c:s", ":.c:t", "s"]
    assert api.ask("GET", "/subjects", subjectPrefix=":.c:") == [":.c:s", ":.c:t"]
    assert api.ask("GET", "/subjects", subjectPrefix=":*:s") == [":.c:s", "s"]
    assert api.ask("GET", "/subjects", subjectPrefix="") == ["s"]
    assert api.ask("GET", "/schemas/ids/1")["schema"] == record("a")
    assert api.ask("GET", "/schemas/ids/1", subject=":.c:")["schema"] == record("b")
    assert api.ask("GET", "/schemas/ids/2")["schema"] == record("c"), "found where it is"
    assert api.ask("GET", "/subjects/t/versions/1")["subject"] == ":.c:t"
    api.ask("PUT", "/config/:.c:", {"compatibility": "NONE"})
    assert api.register(":.c:s", record("x")) == 3
    assert api.register("s", record("x")) == 40901
    assert api.ask("DELETE", "/contexts/.c") == 42211


def test_references(api: Api) -> None:
    api.register("inner", record("a", name="In"))
    outer = {"type": "record", "name": "Out", "fields": [{"name": "i", "type": "In"}]}
    text = json.dumps(outer, separators=(",", ":"))
    references = [{"name": "In", "subject": "inner", "version": 1}]
    assert api.register("outer", text) == 42201
    assert api.register("outer", text, references=[{**references[0], "version": 9}]) == 42201
    assert api.register("outer", text, references=references) == 2
    found = api.ask("GET", "/subjects/outer/versions/1")
    assert (found["schema"], found["references"]) == (text, references)
    inline = json.loads(api.ask("GET", "/schemas/ids/2", format="resolved")["schema"])
    assert inline["fields"][0]["type"]["name"] == "In"
    assert api.ask("POST", "/subjects/outer", {"schema": json.dumps(inline)})["id"] == 2, "the same, written in"
    assert api.ask("GET", "/subjects/inner/versions/1/referencedby") == [2]
    assert api.ask("DELETE", "/subjects/inner/versions/1") == 42206
    assert api.ask("DELETE", "/subjects/inner") == 42206
    api.ask("DELETE", "/subjects/outer")
    assert api.ask("DELETE", "/subjects/inner") == [1]
    assert api.ask("DELETE", "/subjects/inner", permanent="true") == 42206


def test_json_schema(api: Api) -> None:
    text = '{"type":"object","properties":{"a":{"$ref":"a.json"}},"additionalProperties":false}'
    api.register("a", '{"type": "string"}', schemaType="JSON")
    references = [{"name": "a.json", "subject": "a", "version": 1}]
    assert api.register("s", text, schemaType="JSON") == 42201
    assert api.register("s", text, schemaType="JSON", references=references) == 2
    wider = text.replace('{"$ref"', '{"title":"t","$ref"')
    assert api.register("s", wider, schemaType="JSON", references=references) == 3
    other = text.replace('"a":', '"b":')
    assert api.register("s", other, schemaType="JSON", references=references) == 40901
    assert api.register("s", record("a")) == 40901, "another kind of schema"


def test_protobuf(api: Api) -> None:
    inner = 'syntax = "proto3"; package p; message In { int32 n = 1; }'
    outer = 'syntax = "proto3"; import "in.proto"; message Out { p.In in = 1; }'
    api.register("inner", inner, schemaType="PROTOBUF")
    references = [{"name": "in.proto", "subject": "inner", "version": 1}]
    assert api.register("outer", outer, schemaType="PROTOBUF") == 42201
    assert api.register("outer", outer, schemaType="PROTOBUF", references=references) == 2
    serialized = api.ask("GET", "/schemas/ids/2", format="serialized")["schema"]
    assert api.register("outer", serialized, schemaType="PROTOBUF", references=references) == 2
    changed = outer.replace("p.In in", "string in")
    assert api.register("outer", changed, schemaType="PROTOBUF", references=references) == 40901


def test_normalizing(api: Api) -> None:
    one = '{"type":"enum","name":"E","symbols":["A"],"b":1,"a":2}'
    other = '{"type":"enum","name":"E","symbols":["A"],"a":2,"b":1}'
    assert (api.register("s", one), api.register("s", other)) == (1, 2)
    api.ask("PUT", "/config/t", {"normalize": True})
    assert (api.register("t", one), api.register("t", other)) == (2, 2)
    found = api.ask("POST", "/subjects/t", {"schema": one}, normalize="true")
    assert found["version"] == 1


def test_pages(api: Api) -> None:
    for number in range(5):
        api.register(f"s{number}", record("a"))
    assert api.ask("GET", "/subjects", offset=1, limit=2) == ["s1", "s2"]
    assert api.ask("GET", "/schemas/ids/1/subjects", offset=3) == ["s3", "s4"]
    assert api.ask("GET", "/subjects", limit=-1) == [f"s{number}" for number in range(5)]


def test_about_itself(api: Api) -> None:
    assert api.ask("GET", "/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
    assert api.ask("GET", "/v1/metadata/id")["scope"]["clusters"]["schema-registry-cluster"] == "schema-registry"
    assert api.ask("GET", "/v1/metadata/version")["version"]


def test_all_is_there_after_a_restart(broker: Broker) -> None:
    def everything(api: Api) -> list[Any]:
        paths = ("/subjects?deleted=true", "/schemas?deleted=true", "/config", "/config/s", "/mode/s", "/contexts")
        return [api.ask("GET", path) for path in paths]

    with Registry(broker.bootstrap, topic="kept") as registry:
        api = Api(registry.url)
        api.register("s", record("a"))
        api.register("s", record("a", "b?"))
        api.ask("DELETE", "/subjects/s/versions/1")
        api.register(":.c:t", record("a"))
        api.register("gone", record("z"))
        api.ask("DELETE", "/subjects/gone")
        api.ask("DELETE", "/subjects/gone", permanent="true")
        api.ask("PUT", "/config/s", {"compatibility": "FULL"})
        api.ask("PUT", "/mode/s", {"mode": "READONLY"})
        before = everything(api)
    with Registry(broker.bootstrap, topic="kept") as registry:
        api = Api(registry.url)
        assert everything(api) == before
        assert api.register("new", record("n")) == 4, "ids are not given twice"


def test_the_topic(broker: Broker) -> None:
    with Registry(broker.bootstrap, topic="looked-at") as registry:
        api = Api(registry.url)
        api.register("s", record("a"))
        api.ask("PUT", "/config/s", {"compatibility": "FULL"})
        api.ask("DELETE", "/subjects/s")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "x", "enable.partition.eof": True})
    consumer.assign([TopicPartition("looked-at", 0, 0)])
    found = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        found.append((message.key(), message.value()))
    consumer.close()
    text = json.dumps(record("a")).encode()
    assert [each for each in found if b"NOOP" not in each[0]] == [
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            b'{"subject":"s","version":1,"id":1,"schemaType":"AVRO","schema":' + text + b',"deleted":false}',
        ),
        (b'{"keytype":"CONFIG","subject":"s","magic":0}', b'{"subject":"s","compatibilityLevel":"FULL"}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', b'{"subject":"s","version":1}'),
    ]
