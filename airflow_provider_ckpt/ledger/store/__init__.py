"""Load batches, partitions and leases from the ledger's tables for ``core``, store changes, and migrate the tables."""
