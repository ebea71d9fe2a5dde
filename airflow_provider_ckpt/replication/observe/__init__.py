"""Observe a pipeline without changing it: lag, conditions of sensors, previews of plans, and audits."""
