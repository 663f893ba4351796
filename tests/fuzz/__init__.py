"""Requests that are wrong in one place or another, made from the schemas: `tree.py` holds one as a tree of values."""
