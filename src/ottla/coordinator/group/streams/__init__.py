"""Streams groups (KIP-1071): members of a Kafka Streams application, whose tasks the coordinator deals out."""
