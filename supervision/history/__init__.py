"""The chain over the history of runs and the operators' log: digests that show later changes.

May import: models, conf, runtime, postgres.
Public: linking (the sweep and the archive call it), ends.
"""
