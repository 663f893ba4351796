"""Damage at seeded places of every kind of file, and a model of what has to be left. `run.py` runs it for long."""
