"""One partition's log: append, read, truncate, retain (`log.py`, Kafka's `UnifiedLog`), and how it is opened
(`log_loader.py`)."""
