"""The node's face to its clients: sockets, framing, dispatch, one handler per API, and the composition root.

May import everything below (drivers and down); nothing but the command line, tests and Spark code imports it.
Start at `node.py` (what a node is made of), then `connections/connection.py` (how bytes become requests), `api.py`
(what a handler is) and `handlers/records/produce.py` (the hot path).
"""
