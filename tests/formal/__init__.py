"""Proof of the ledger's rules: an exhaustive search over the core, TLA+ models of the protocols, and mutants of both.

``make formal`` runs the whole proof (``__main__.py``); the tests in this package run a small part of it.
"""
