"""A lane: one task of a wave's Spark job, which reads, transforms and delivers its list of batches in order."""
