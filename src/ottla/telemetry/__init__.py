"""Client telemetry (KIP-714): which metrics clients are asked to push, and what they pushed last.

Pure: the time and random ids are given by the caller. `subscriptions.py` has what an administrator subscribed to and
for which clients, `clients.py` the state of each client and what its requests are answered, `otlp.py` reads what they
push.
"""
