"""The plugin for pytest that comes with the distribution: an application's workflows under test, in one process.

May import: every room. No room imports it.
Public: plugin (the fixture `sas`), kit (what the fixture is), run (a run under test).
"""
