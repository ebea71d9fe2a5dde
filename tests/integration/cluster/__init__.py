"""Pipelines on a Spark standalone cluster."""
