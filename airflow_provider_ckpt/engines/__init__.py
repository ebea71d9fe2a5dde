"""Engines: each runs a pipeline's waves on a Spark of its own kind; ``factory`` chooses by ``run.engine``."""
