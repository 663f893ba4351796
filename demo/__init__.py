"""The main job on real input: `make demo`, or `.venv/bin/python -m demo` once `make demo` has set it up.

A node, feeders of this machine's own data, a consumer group that follows them, and a Spark job that reads the same
topics as streams and writes one exactly once, by `format("ottla")`.
Uses Ottla only as a user would: its command line and Kafka clients.
Start with `__main__.py`; each of the other modules is one actor.
"""
