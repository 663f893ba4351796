"""Geo-replication: topics, configs, records exactly once, and group offsets, from another cluster to this one.

`from` is the other cluster's bootstrap; topics that match `topics` are kept here as they are there: partitions, order,
keys, headers and timestamps. Offsets of groups that match `groups` are translated exactly and committed here while a
group has no members here. With `policy=prefix` topics are called SOURCE.TOPIC. `ottla mirror plan` says what it
will do, `ottla mirror status` shows the lag, `ottla mirror failover` and `failback` hand topics over and back, and stop
this.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from ottla.client.properties import security_of_file
from ottla.client.security_settings import WrongSecurity
from ottla.mirror.carrying import carry_of
from ottla.mirror.control_topic import MirrorError
from ottla.mirror.mirror import Mirror, Policy, Route
from ottla.mirror.names import DESTINATION, SOURCE
from ottla.pipelines.runner import Job, PipelineError, Setting

SETTINGS = (
    Setting("from", "127.0.0.1:9192", "bootstrap addresses of the cluster to mirror"),
    Setting("source", SOURCE, "its name"),
    Setting("destination", DESTINATION, "name of the destination cluster"),
    Setting("topics", ".*", "topics: a regular expression that matches whole names"),
    Setting("groups", ".*", "groups: a regular expression that matches whole names"),
    Setting("policy", "identity", "names of topics at the destination: identity (unchanged) or prefix (SOURCE.TOPIC)"),
    Setting(
        "carry",
        "",
        "what is kept alike beside topics and groups, by commas: acls (or read-acls), quotas, broker-configs, users",
    ),
    Setting(
        "deletions",
        False,
        "also remove ACLs, quotas, broker settings and users that the mirror made, when they are gone",
    ),
    Setting("exclude", "", "settings that stay the destination's own: regular expressions for whole names, by commas"),
    Setting("exclude_users", "", "users that are not carried: regular expressions for whole names, by commas"),
    Setting("from_controllers", "", "addresses of the source's controllers, from which users are read"),
    Setting(
        "from_controllers_config",
        "",
        "a client.properties for the login at those controllers, where it is not that at the source's brokers",
    ),
    Setting(
        "every", 0.01, "minimum seconds between transactions: records are visible when their transaction has ended"
    ),
    Setting("look", 1.0, "seconds between checks for new topics, configs and group offsets"),
)


def build(job: Job) -> None:
    if job["policy"] not in ("identity", "prefix"):
        raise PipelineError(f"policy: expected identity or prefix, got {job['policy']!r}")
    try:
        route = Route(
            job["source"],
            job["from"],
            job["destination"],
            job.bootstrap,
            job["topics"],
            job["groups"],
            cast(Policy, job["policy"]),
            source_security=job.options.source_security,
            destination_security=job.security,
            carry=carry_of(job["carry"], job["deletions"], job["exclude"], job["exclude_users"]),
            source_controllers=job["from_controllers"],
            controllers_security=security_of_file(Path(file)) if (file := job["from_controllers_config"]) else None,
        )
    except (MirrorError, WrongSecurity) as error:
        raise PipelineError(str(error)) from None
    mirror = Mirror(route, job.spark, job["every"])
    step = mirror.step if job.is_once else mirror.follow
    job.step(
        "records",
        step,
        every_s=job["look"],
        query=lambda: mirror.progress,
        bootstrap=job["from"],
        security=job.options.source_security,
    )
