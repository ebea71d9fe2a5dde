"""Engines, each of which runs the waves of a pipeline on one kind of Spark.

``factory.py`` chooses the engine by the pipeline's key ``run.engine``.
"""
