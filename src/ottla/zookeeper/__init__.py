"""A client of Apache ZooKeeper 3.5 and newer, without threads.

`jute.py` and `messages.py` are the wire, `session.py` is the session as a pure state machine (bytes and ticks in,
effects out), and `client.py` drives a session on `ottla.network`. Names are ZooKeeper's own. May import `ottla.network`
and below. Start at `session.py`.
"""
