"""The audit log on disk (`audit_log.py`), and its way into a topic (`audit_topic.py`)."""
