"""Lanes: each is one task of a wave's Spark job, which reads, transforms and delivers a list of batches in order."""
