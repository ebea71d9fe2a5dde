"""Spark applications that the ``submit`` and ``warm`` engines start, their protocols, and their helper processes."""
