"""What a pipeline is written against (`Job`, `Setting`), and what runs it (`Run`).

A pipeline is a Python module: its docstring's first line says what it does, `SETTINGS` what can be set, and
`build(job)` starts its queries. `ottla pipeline run NAME` runs one that comes with Ottla, `ottla pipeline run FILE.py`
any other:

    \"\"\"Orders by customer.\"\"\"

    from pyspark.sql import functions as F

    from ottla.pipelines.runner import Job, Setting

    SETTINGS = (
        Setting("input", "orders", "topic of the orders"),
        Setting("output", "totals", "topic of what each customer has spent"),
    )

    def build(job: Job) -> None:
        orders = job.read("input", "customer STRING, amount DOUBLE").select("value.*")
        totals = orders.groupBy("customer").agg(F.sum("amount").alias("spent"))
        job.write("totals", totals, "output", key="customer", mode="update")
"""

from ottla.pipelines.runner.errors import PipelineError
from ottla.pipelines.runner.job import Job
from ottla.pipelines.runner.options import Options
from ottla.pipelines.runner.pipeline import Pipeline, Setting, load, names
from ottla.pipelines.runner.run import Run

__all__ = ["Job", "Options", "Pipeline", "PipelineError", "Run", "Setting", "load", "names"]
