"""Engines: each runs a pipeline's waves on one kind of Spark; ``factory`` chooses by ``run.engine``."""
