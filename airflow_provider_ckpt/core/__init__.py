"""Domain rules of replication: ranges, batches, checkpoints, leases, receipts, errors and delivery policy.

The package uses the standard library only and, except ``private_files.py``, does no I/O, so that its rules can be
tested and searched exhaustively without a database, Kafka or Spark.
"""
