"""Spark's `format("ottla")`: topics as tables, without a connector JAR, on any cluster that speaks Kafka's protocol.

The names and meanings of options are those of Spark's own Kafka connector (`connector/kafka-0-10-sql`), so that code
moves by changing one word. `options.py`
reads them; `planning.py` and `ranges.py` decide, without any input or output, which offsets a micro-batch takes and
which task reads what. May import
`ottla.client`, `ottla.arrow` and what lies below.
"""
