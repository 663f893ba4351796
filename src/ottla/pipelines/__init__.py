"""Pipelines on Spark that come with Ottla, each a module of its own, and what runs them."""
