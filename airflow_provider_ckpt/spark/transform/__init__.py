"""The transform of a pipeline: decode, ``where``, ``select``, and a verdict for each record."""
