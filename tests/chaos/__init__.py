"""Crashes on purpose, and the accounts that must balance afterwards."""
