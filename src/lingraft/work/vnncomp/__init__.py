"""Instances and benchmarks of VNN-COMP, decided by lingraft or by other verifiers."""
