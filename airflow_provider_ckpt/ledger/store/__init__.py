"""The ledger's tables: load, store and migrate the state that ``core`` works on."""
