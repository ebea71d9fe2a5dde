"""Spark application that the ``submit`` engine starts, and its helper processes."""
