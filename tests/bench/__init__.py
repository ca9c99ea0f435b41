"""Measurements, not tests: `make bench` prints ratios, and nothing fails when a machine is slow."""
