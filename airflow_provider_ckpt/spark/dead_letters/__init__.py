"""Create dead letters in Spark, apply ``error_policy`` to single records, and read dead letters for a replay."""
