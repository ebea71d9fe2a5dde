"""Transform the records of a pipeline: decode, ``where``, ``select``, a Python function; each record gets a verdict."""
