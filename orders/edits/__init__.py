"""Lines of an order that an operator changes before anything is charged: fewer pieces, or a line less. See `docs/operations.md`."""
