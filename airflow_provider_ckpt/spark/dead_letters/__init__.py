"""Dead letters in Spark: the original records, the headers, ``error_policy`` for single records, and reading for a
replay.
"""
