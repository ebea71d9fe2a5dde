"""Engines: each runs the waves of a pipeline on one kind of Spark; ``factory.py`` chooses the engine by
``run.engine``.
"""
