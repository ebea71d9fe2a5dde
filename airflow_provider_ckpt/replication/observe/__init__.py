"""Read-only views of a pipeline, its ledger, source and sink: lag, conditions, previews, audits."""
