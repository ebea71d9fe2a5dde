"""Real services that tests start for themselves, on loopback and free ports."""
