"""Moves of replicas: how far their copies are, and what holds them back.

Start with `copying.py`.
"""
