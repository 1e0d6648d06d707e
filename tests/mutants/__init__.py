"""Mutations of the product, one or more for each requirement, and the tests that have to notice them.

`./run mutants` applies each mutation to a copy of the tree and runs the test that it names: the test has to fail. The text
files here have the mutations, and docs/requirements.md lists them.

The mutations change the source, and prove the tests that docs/requirements.md names. `tests/simulation/test_teeth.py` proves
the simulation, in every run of the tests: it switches bugs on inside one process.
"""
