"""The mail that an order is on its way, sent once more because an operator asks for it."""
