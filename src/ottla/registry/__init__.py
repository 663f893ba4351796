"""A schema registry with Confluent's REST API, and its clients."""
