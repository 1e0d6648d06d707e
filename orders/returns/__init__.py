"""Goods that come back: a return is asked for, its goods are looked at, the money for them goes back. See `docs/returns.md`."""
