"""Moves of replicas: how far their copies are, and what holds them back.

Start with `under_way.py`.
"""
