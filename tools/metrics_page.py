"""Writes docs/reference/metrics.md from the table: `python -m tools.metrics_page [FILE]`.

Without a file it writes to standard output. A test fails when the file in the repository is not what this gives.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ottla.metrics.table import SECTIONS
from tools.pages import write_page

INTRODUCTION = """\
# Metrics, health and logs

This page is rendered: `python -m tools.metrics_page docs/reference/metrics.md`.

    ottla server start --http 127.0.0.1:9404

or the setting `ottla.http.listener=127.0.0.1:9404` opens an HTTP port. Without it there is no HTTP port, and none of
its code is loaded. Everyone who can reach the port can read metrics, which name topics and groups: `:9404` means all
interfaces and is for trusted networks only.

| path | what it answers |
|---|---|
| `/metrics` | all metrics, as Prometheus' text or, where `Accept` asks for it, as OpenMetrics; gzip where accepted |
| `/health` | liveness: 200 while the node works, starts or stops; 503 when no log directory can be used |
| `/ready` | readiness: 200 while clients are served; 503 while it starts (with its progress), loads groups or stops |

`/health` and `/ready` answer with JSON that says why, and to HEAD as well as GET. The `status` of `/health` is
`degraded` while a log directory is full (`full_directories`: less than 1 MiB is free, or a write was refused in the
last 30 s) or offline while others are not (`offline_directories`), and `damaged` with partitions that are not served
(`damaged_partitions`; `__cluster_metadata-0` where `quorum-state` has an epoch that no election has reached). All
these answer 200: the rest is served, and a restart mends none of them. As probes of Kubernetes:

```yaml
startupProbe: {httpGet: {path: /health, port: 9404}, failureThreshold: 60, periodSeconds: 5}
livenessProbe: {httpGet: {path: /health, port: 9404}, timeoutSeconds: 5}
readinessProbe: {httpGet: {path: /ready, port: 9404}}
```

In tests: `with Broker(ottla_http_listener="127.0.0.1:9404") as broker:`.

## Prometheus and Grafana

The repository has a starting point:
[deploy/prometheus/prometheus.yml](../../deploy/prometheus/prometheus.yml)
scrapes a node, [deploy/prometheus/alerts.yml](../../deploy/prometheus/alerts.yml) has alerts on partitions that are
offline, on groups that fall behind and on disks that fill up, and
[deploy/grafana/ottla.json](../../deploy/grafana/ottla.json) is a dashboard: in Grafana *Dashboards, New, Import*, then
choose the Prometheus data source.

Names are those of Kafka's dashboards: what the widespread configuration of the JMX exporter makes of Kafka's metrics,
and those of kafka_exporter for the lag of groups, so neither of the two is needed. Where Kafka has quantiles in
milliseconds, here is a histogram in seconds (`..._seconds_bucket`). As in Kafka the metrics of a topic's traffic also
come without the label `topic`, as the total of all topics: sum either `{topic=""}` or `{topic!=""}`.
The averages, maxima and rates of `kafka_server_raft_metrics_` are over the latest `metrics.num.samples` windows of
`metrics.sample.window.ms`, by default the last 30 to 60 seconds, and NaN while nothing happened, as in Kafka.

A node exposes the metrics of partitions that it holds and of groups that it coordinates. With very many partitions,
`ottla.metrics.partitions=false` leaves out the series that are marked with a dagger (†), one for each partition.

## Lag in seconds

The lag of a group in seconds is the age of the oldest record that it has not committed, whether or not the group has
members. The node reads the timestamp from its own log, once for each committed offset; records that have to be read
from the disk are read in a thread, a bounded number of them in one scrape, and the rest in the next.

## The names
"""

LOGS = """\

## Logs

A node logs to standard error; the line that says where it listens is on standard output.

| setting | values |
|---|---|
| `ottla.log.level` | `DEBUG`, `INFO`, `WARN`, `ERROR`, `FATAL`; `INFO` by default, `WARN` for nodes that tests embed |
| `ottla.log.format` | `text`, or `json`: one object in a line |
| `ottla.log.slow.request.ms` | longer requests are logged (-1: none), but for Fetch, JoinGroup, SyncGroup, which wait |

An object has `timestamp` (RFC 3339, UTC), `level`, `logger`, `event` (a sentence that does not change), and what
belongs to the event as fields of its own:

```json
{"timestamp": "2026-01-05T10:00:00.123Z", "level": "WARN", "logger": "ottla.requests", "event": "slow request", "ms": 9}
```

Levels change while a node runs, for all loggers (`root`) or for one, as Kafka's do:
`kafka-configs.sh --alter --entity-type broker-loggers --entity-name 1 --add-config ottla.groups=DEBUG`.

| logger | what it says |
|---|---|
| `ottla.node` | start with its timings, stop, settings that changed |
| `ottla.controller` | topics created, deleted and changed, leaders of partitions |
| `ottla.logs` | recovery, damage, disk failures |
| `ottla.produce` | refused batches of idempotent producers, with their sequences and the error |
| `ottla.replication` | changes of in-sync replicas, leaders that cannot be followed, truncated logs |
| `ottla.pipelines` | failed queries of a pipeline and their restarts |
| `ottla.mirror` | records deleted before they were copied, restarts of copying, unreachable clusters |
| `ottla.registry` | skipped schemas, elections, failed changes |
| `ottla.console` | logins, and who read which records |
| `ottla.spark` | unknown options of the Spark source, and options without effect |
| `ottla.cleaner` | compaction of logs |
| `ottla.groups` | rebalances, loading of groups; new epochs within a second are one line, with `times` |
| `ottla.nodes` | another node, or one of another cluster, that answers at a node's address |
| `ottla.transactions` | new producers, transactions that time out, coordinators and partitions that do not answer |
| `ottla.share` | what the share coordinator loads, prunes and cannot prune |
| `ottla.zookeeper` | sessions with ZooKeeper: connected, lost, expired |
| `ottla.network` | refused clients, failed TLS handshakes, and clients that sent invalid requests |
| `ottla.tls` | certificates that were taken up, cannot be used or expire soon |
| `ottla.authentication` | clients that fail to log in (SASL), keys of identity providers |
| `ottla.requests` | slow requests, internal errors in a request |
| `ottla.authorizer` | denied requests, with principal, operation, resource, host and rule; at DEBUG allowed ones |
| `ottla.audit` | an audit log that cannot be written, or was cut while the node was away |
"""


def document() -> str:
    """The whole page."""
    return "".join(_parts())


def _parts() -> Iterator[str]:
    yield INTRODUCTION
    for section in SECTIONS:
        yield f"\n### {section.title}\n\n| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n"
        for metric in section.metrics:
            dagger = " †" if metric.per_partition else ""
            where = ", ".join(f"`{label}`" for label in metric.labels)
            yield f"| `{metric.name}`{dagger} | {metric.type} | {where} | {metric.unit} | {metric.doc} |\n"
    yield LOGS


if __name__ == "__main__":
    write_page(document(), sys.argv[1:])
