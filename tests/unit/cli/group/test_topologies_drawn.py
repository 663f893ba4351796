"""`ottla group describe --topology`: the drawing has each node once and 80 columns."""

from __future__ import annotations

from typing import Any

from ottla.cli.group.topology import as_json, drawn


def node(name: str, kind: int, *successors: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "node_type": kind,
        "source_topics": (),
        "sink_topic": None,
        "stores": (),
        "successors": successors,
        **more,
    }


COUNTING = {
    "subtopologies": [
        {
            "subtopology_id": "0",
            "nodes": [
                node("left", 1, "join", source_topics=("orders", "returns")), node("any", 1, "join"),
                node("join", 2, "out", "by record", stores=("kept",)), node("out", 3, sink_topic="counts"),
                node("by record", 3),
            ],
        },
        {"subtopology_id": "1", "nodes": [node("round", 2, "about"), node("about", 2, "round", "nowhere")]},
    ],
    "global_stores": [
        {"source": node("g", 1, "gp", source_topics=("prices",)), "processor": node("gp", 2, stores=("gs",))}
    ],
}  # fmt: skip


def test_a_topology_is_drawn() -> None:
    assert list(drawn(COUNTING)) == [
        "subtopology 0",
        "  left  reads orders, returns",
        "    > join  stores kept",
        "      > out  writes counts",
        "      > by record  writes topics that records choose",
        "  any  reads topics by a pattern",
        "    > join (above)",
        "",
        "subtopology 1",
        "  round",
        "    > about",
        "      > round (above)",
        "      > nowhere",
        "",
        "global store gs",
        "  g  reads prices",
        "    > gp  stores gs",
    ]


def test_long_lists_are_wrapped_and_deep_graphs_stay_in_sight() -> None:
    topics = tuple(f"application-topic-{number}" for number in range(12))
    chain = [node(f"n{number}", 2, f"n{number + 1}", stores=(f"store-{number}",)) for number in range(60)]
    nodes = [node("s", 1, "n0", source_topics=topics), *chain, node("n60", 3, sink_topic="t")]
    lines = list(drawn({"subtopologies": [{"subtopology_id": "0", "nodes": nodes}], "global_stores": []}))
    assert max(map(len, lines)) <= 80
    assert all(topic in " ".join(lines) for topic in topics)
    assert sum("> n" in line for line in lines) == 61


def test_as_data() -> None:
    found = as_json("g", COUNTING)
    assert found["group"] == "g"
    assert found["subtopologies"][0]["nodes"][2] == {
        "name": "join",
        "type": "processor",
        "stores": ["kept"],
        "successors": ["out", "by record"],
    }
    assert found["subtopologies"][0]["nodes"][4] == {
        "name": "by record",
        "type": "sink",
        "topic": None,
        "successors": [],
    }
    (store,) = found["global_stores"]
    assert (store["source"]["topics"], store["processor"]["stores"]) == (["prices"], ["gs"])
