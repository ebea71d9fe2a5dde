"""A lane, one task of a wave's Spark job: read, gather and deliver its batches in order."""
