"""The tables of the ledger: load and store the state on which ``core`` works, and migrate the schema."""
