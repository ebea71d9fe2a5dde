"""Dead letters in Spark: original records, headers, ``error_policy`` for single records, and reading for a replay."""
