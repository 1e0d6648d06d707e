"""How the shop's agents reach their services: wire formats and time limits, no decisions. Only agents import these."""
