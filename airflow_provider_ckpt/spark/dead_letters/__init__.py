"""Dead letters in Spark: original records, headers, the error policy for records, and reading them for a replay."""
