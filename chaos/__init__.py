"""Breaks a whole running shop on purpose, from a seed, and proves afterwards that nothing was lost and nothing done twice.

`plan` draws the faults and `nemesis` injects them. `client` plays the customers, `bot` plays the operator. `checker`
compares the answers that they received with the database and the remote services' ledgers. The package is not installed
with the product. It uses the shop only through its contracts: commands, the API, tables, the simulators.
"""
