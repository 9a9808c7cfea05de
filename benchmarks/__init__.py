"""Measurements, never tests: ``python -m benchmarks [name …] [--json]``."""
