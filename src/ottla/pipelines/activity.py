"""Website activity: page views to sessions, and to funnels by the hour.

Page views are JSON, `{"user": "ada", "page": "/cart", "at": "2026-11-25T09:00:00Z"}`, in the topic `input`, from
however many web servers, each at most `delay` late. A session ends when its user has been quiet for `gap`; then it is
written to `sessions`, once: who, from when to when, where it began and ended, and how deep into the funnel it came,
that is how many of `steps` were visited one after the other. `funnels` gets for each hour how many sessions came how
deep. The views of a session are kept as state until it ends: of a user who never pauses, a program, for good, so
leave those out where there are any.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla.pipelines.runner import Job, Setting

SETTINGS = (
    Setting("input", "page-views", "topic of the page views"),
    Setting("sessions", "sessions", "topic of the sessions"),
    Setting("funnels", "funnels", "topic of the funnels"),
    Setting("steps", "/,/product,/cart,/checkout", "pages of the funnel, in order"),
    Setting("gap", "30 minutes", "a session ends after this time without a page view"),
    Setting("delay", "1 minute", "how late a page view may arrive; later ones are dropped"),
    Setting("every", "1 hour", "windows of the funnels"),
)
VIEW = "user STRING, page STRING, at TIMESTAMP"


def build(job: Job) -> None:
    views = job.read("input", VIEW).select("value.*").where("user is not null and page is not null and at is not null")
    sessions = sessions_of(views, job["steps"].split(","), job["gap"], job["delay"])
    shown = sessions.drop("session")
    job.write("sessions", shown, "sessions", key="user")

    # A query of its own: each has its checkpoint, and the watermark of what it writes.
    views = job.read("input", VIEW, group="funnels", dead_letters=False).select("value.*")
    views = views.where("user is not null and page is not null and at is not null")
    sessions = sessions_of(views, job["steps"].split(","), job["gap"], job["delay"])
    job.write("funnels", funnels_of(sessions, job["steps"].split(","), job["every"]), "funnels", key="start")


def sessions_of(views: DataFrame, steps: list[str], gap: str, delay: str) -> DataFrame:
    """A row for each session that is over."""
    seen = F.sort_array(F.collect_list(F.struct("at", "page")))
    return (
        views.withWatermark("at", delay)
        .groupBy("user", F.session_window("at", gap).alias("session"))
        .agg(F.min("at").alias("start"), F.max("at").alias("end"), F.count("*").alias("views"), seen.alias("seen"))
        .select(
            "session",
            "user",
            "start",
            "end",
            "views",
            F.element_at("seen", 1)["page"].alias("entry"),
            F.element_at("seen", -1)["page"].alias("exit"),
            _depth(F.col("seen"), steps).alias("depth"),
        )
    )


def _depth(seen: Column, steps: list[str]) -> Column:
    """How many of the steps were visited in order, with whatever between them."""
    pages = F.array(*[F.lit(step) for step in steps])
    return F.aggregate(
        seen,
        F.lit(0),
        lambda depth, view: F.when(F.try_element_at(pages, depth + 1) == view["page"], depth + 1).otherwise(depth),
    )


def funnels_of(sessions: DataFrame, steps: list[str], every: str) -> DataFrame:
    """A row for each window: sessions that ended in it, and how many of them came to each step."""
    came = [F.count_if(F.col("depth") >= number).alias(f"to_{number}") for number in range(1, len(steps) + 1)]
    named = F.array(
        *[
            F.struct(F.lit(step).alias("step"), F.col(f"to_{number}").alias("sessions"))
            for number, step in enumerate(steps, 1)
        ]
    )
    return (
        sessions.groupBy(F.window("session", every).alias("window"))
        .agg(F.count("*").alias("sessions"), *came)
        .select(F.col("window.start").alias("start"), "sessions", named.alias("steps"))
    )
