"""Clients of the services, for the shop's agents and its reconciliation: wire formats and time limits, no decisions."""
