"""Verification on many machines, with Ray; see docs/cluster.md."""
