"""The tables of the chain over the history (`supervision.history`)."""
