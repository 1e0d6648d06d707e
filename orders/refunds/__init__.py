"""Money that an operator gives back without goods: asked for with a reason, paid back once. See `docs/returns.md`."""
