"""Records with malicious or unusual content, and an independent judge of the outcome that each must have."""
