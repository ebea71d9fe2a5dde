"""Domain rules of replication without I/O: ranges, batches, checkpoints, leases, receipts, errors and delivery policy.

The package uses the standard library only, so that its rules can be tested and searched exhaustively without a
database, Kafka or Spark.
"""
