"""Real servers that tests start themselves, on loopback and free ports."""
