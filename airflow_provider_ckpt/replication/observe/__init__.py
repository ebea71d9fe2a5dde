"""Read-only looks at a pipeline against its ledger, source and sink: lag, conditions, previews, audits."""
