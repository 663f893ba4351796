"""Connections of clients: received bytes to requests (`connection.py`), answers to bytes (`outbox.py`), and their
limits."""
