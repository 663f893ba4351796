"""Two streams joined: orders with their payments, and orders that were not paid in time.

Orders are JSON in the topic `orders`, `{"order": "7", "customer": "ada", "amount": 12.5, "at":
"2026-11-25T09:00:00Z"}`, and payments in `payments`, `{"payment": "p7", "order": "7", "amount": 12.5, "at": "..."}`.
A payment pays its order from `before` ahead of it to `within` after it. `paid` gets an order with each of its
payments as soon as both are there; `unpaid` an order without any, when `within` and `delay` have passed. What waits
for its other half is dropped then, so that state does not grow for good.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla.pipelines.runner import Job, Setting

SETTINGS = (
    Setting("orders", "orders", "topic of the orders"),
    Setting("payments", "payments", "topic of the payments"),
    Setting("paid", "paid", "topic of orders with their payments, keyed by order"),
    Setting("unpaid", "unpaid", "topic of orders that were not paid in time, keyed by order"),
    Setting("within", "1 hour", "how long after its order a payment may come"),
    Setting("before", "1 minute", "how long before its order a payment may come, as clocks differ"),
    Setting("delay", "1 minute", "how late an order or a payment may arrive; later ones are dropped"),
)
ORDER = "order STRING, customer STRING, amount DOUBLE, at TIMESTAMP"
PAYMENT = "payment STRING, order STRING, amount DOUBLE, at TIMESTAMP"


def build(job: Job) -> None:
    orders, payments = _both(job, "paid", dead_letters=True)
    paid = orders.join(payments, _pays(job), "inner").drop("paid_order")
    job.write("paid", paid, "paid", key="order")

    orders, payments = _both(job, "unpaid", dead_letters=False)
    found = orders.join(payments, _pays(job), "leftOuter").where("payment is null")
    job.write("unpaid", found.select("order", "customer", "amount", "at"), "unpaid", key="order")


def _both(job: Job, group: str, *, dead_letters: bool) -> tuple[DataFrame, DataFrame]:
    """Orders and payments, each with a watermark: how far a join may drop what waits."""
    orders = job.read("orders", ORDER, group=group, dead_letters=dead_letters).select("value.*")
    payments = job.read("payments", PAYMENT, group=f"{group}-payments", dead_letters=dead_letters).select(
        "value.payment",
        F.col("value.order").alias("paid_order"),
        F.col("value.amount").alias("paid_amount"),
        F.col("value.at").alias("paid_at"),
    )
    return (
        orders.where("order is not null and at is not null").withWatermark("at", job["delay"]),
        payments.where("paid_order is not null and paid_at is not null").withWatermark("paid_at", job["delay"]),
    )


def _pays(job: Job) -> Column:
    interval = f"paid_at between at - interval {job['before']} and at + interval {job['within']}"
    return F.expr(f"paid_order = order and {interval}")
