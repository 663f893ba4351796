"""Pipelines beside each other in one driver, so that one kill is all of theirs. Settings are PIPELINE.NAME."""

from __future__ import annotations

from dataclasses import replace

from ottla.pipelines.runner import Job, load

NAMES = ("activity", "join", "lake", "logs", "metrics", "postgres", "replay", "ticks")
SETTINGS = tuple(replace(setting, name=f"{name}.{setting.name}") for name in NAMES for setting in load(name).settings)


def build(job: Job) -> None:
    for name in NAMES:
        pipeline = load(name)
        values = {setting.name: job[f"{name}.{setting.name}"] for setting in pipeline.settings}
        part = Job(pipeline, job.options, values, lambda: job.spark, f"{job.checkpoints}/{name}")
        pipeline.build(part)
        job.queries += [replace(each, name=f"{name}.{each.name}") for each in part.queries]
        job.steps += part.steps
