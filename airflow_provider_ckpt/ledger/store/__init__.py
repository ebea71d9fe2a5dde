"""Tables of the ledger: load the state on which ``core`` works, store its changes, and migrate the schema."""
