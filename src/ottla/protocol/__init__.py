"""The wire protocol and the record batch, pure: bytes in, values out.

`messages.py` has every API by Kafka's own definitions (`schemas`, read by `reader.py`, written by `writer.py`),
`fetch_responses.py` answers to Fetch by hand, `records/record_batch.py` the v2 batch, the same on the wire and
on disk, `internal/` the records only brokers write.
May import `ottla.config`, `ottla.model` and `ottla.errors`. Start with `records/record_batch.py`.
"""
