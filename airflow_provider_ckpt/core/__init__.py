"""Domain logic: ranges, batches, the partition state machine, the delivery policy. Standard library only, no I/O."""
