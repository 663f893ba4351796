"""Typed keys and values: Avro and JSON bytes to Arrow columns and back. Needs pyarrow, not PySpark.

Start at `typed.py`: options to columns, and what becomes of bad records. `ddl.py` reads Spark's schema
texts, `avro_schema.py` Avro's;
`json_values.py` and `avro_values.py` decode and encode a column (`json_texts.py` writes JSON), `nested.py` puts Arrow
arrays together.
May import `ottla.errors` and `ottla.model` only. fastavro and orjson are imported where a format needs them.
"""
