"""Checks, tests and generated files of this repository: what scripts/test and scripts/generate run."""
