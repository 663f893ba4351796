"""Clients older than Kafka 2.1: the versions of APIs that Kafka 4.0 removed (KIP-896), if a setting asks for them.

May import whatever a handler may. Nothing here is loaded by a node without `ottla.legacy.protocol.versions.enable`,
but for the sentence that names the setting to a client that needs it. Start at `apis.py`.
"""
