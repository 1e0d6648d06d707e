"""Mutations of the product, one or more for each requirement that is built, and the tests that have to notice them.

`./run mutants` applies each to a copy of the tree and runs the test that it names: the test has to fail. The tables are
`scheduling`, `supervising`, `recording`, `consuming`, `governing` and `open_questions`; docs/requirements.md names them row by row.

`tests/teeth` is the other half: it switches bugs on inside one process, with every run of the tests, and proves the checks
that many tests share (the random walk, the races). Here the source itself is changed, and what is proven are the tests by
which a requirement stands.
"""
