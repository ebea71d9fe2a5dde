"""The transform of a pipeline: decoding, ``where``, ``select`` and a Python function, with a verdict for each
record.
"""
