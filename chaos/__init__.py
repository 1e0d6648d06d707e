"""Breaks a whole running shop on purpose, from a seed, and proves afterwards that nothing was lost and nothing done twice.

`plan` draws the faults, `nemesis` commits them, `client` and `bot` are the people outside, `checker` compares what they
were told with the database and the remote services' ledgers. Not installed with the product; it knows the shop only
through its contracts: commands, the API, tables, the simulators.
"""
