"""Metrics, health and readiness over HTTP, where `ottla.http.listener` asks for them.

May import everything below `server` and the node's state; nothing imports it but the node. Start with `server.py`
(the protocol and its limits), then `pages.py` (what is answered).
"""
