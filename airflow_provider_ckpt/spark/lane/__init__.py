"""A lane: one task of a wave's Spark job, which reads, gathers and delivers its batches in order."""
