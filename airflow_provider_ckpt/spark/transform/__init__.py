"""The transform of a pipeline: decoding, ``where``, ``select``, a Python function; each record gets a verdict."""
