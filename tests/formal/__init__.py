"""Proof that the ledger's rules hold: the core searched exhaustively, the protocol in TLA+, and mutants of both.

``make formal`` runs all of it (``__main__.py``); the tests here are the same in small.
"""
