"""A storm of random commands on one ledger, and the oracle that holds the ledger to what it acknowledged."""
