"""The `ottla` command: what people and scripts type.

May import every layer below; nothing imports it. Client commands speak Kafka's protocol through confluent-kafka, so
they work against any broker; `log dump` reads files and needs none. Start with `main.py`, then `app.py`.
Heavy imports (cyclopts, rich, confluent_kafka) happen inside the command that needs them: a node must stay small.
"""
