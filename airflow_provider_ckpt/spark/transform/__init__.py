"""The transform of a pipeline: decode, ``where``, ``select``, a Python function, and a verdict for each record."""
