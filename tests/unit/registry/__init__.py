"""Tests of `ottla.registry`."""
