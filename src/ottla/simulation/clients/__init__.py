"""Simulated clients: producers, consumers, members of groups, administrators. Start at `clients.py`."""
