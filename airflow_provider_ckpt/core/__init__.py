"""The pure heart: ranges, batches, the partition state machine, policy. Standard library only; no I/O, no clock."""
