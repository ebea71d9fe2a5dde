"""Load the state on which ``core`` works from the ledger's tables, store its changes, and migrate the tables."""
