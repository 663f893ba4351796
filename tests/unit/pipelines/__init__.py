"""Tests of the runner of pipelines that need no Spark."""
