"""The metadata of a node, put together (`metadata_services.py`, Kafka's `SharedServer`): images for subscribers
(`metadata_publisher.py`), and the broker's life at the controller (`broker_lifecycle.py`)."""
