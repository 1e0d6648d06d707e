"""Tests of the erasure and the export of a person's data."""
