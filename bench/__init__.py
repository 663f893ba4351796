"""Benchmarks: Ottla and Apache Kafka under the same load on the same machine in one run. `python -m bench --help`."""
