"""Keys and values by a schema registry, this one or Confluent's: what clients, the command line and Spark read and
write with.

Start at `options.py`: options to the schemas that are read as or written with; `values.py` decodes and encodes columns
by the ids that records carry (`wire.py`). `client.py` speaks the REST API. `avro.py`, `json_schema.py` and
`protobuf.py` know one kind of schema each: its references, and Arrow types in both directions.
"""
