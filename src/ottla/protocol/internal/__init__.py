"""Records that brokers write for brokers: metadata, consumer groups, offsets, transactions, quorum control records.

`codec.py` encodes dataclasses by field specifications; the modules beside it declare the records as Kafka's schemas do.
May import what `ottla.protocol` may. Start with `codec.py`.
"""
