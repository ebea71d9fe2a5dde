"""Domain logic without I/O: ranges, batches, the state machine of a partition, the delivery policy.

It uses the standard library only, so that its rules can be tested and searched without a database, Kafka or Spark.
"""
