"""Triggers: what waits in the triggerer in a task's place."""
