"""What becomes of the rows about an order when the order is over: the archive, what is read back from it, what is deleted at last."""
