"""Dead letters in Spark: original records, headers, the policy about errors, and reading them for a replay."""
