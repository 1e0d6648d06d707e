"""Notes and owners of orders and incidents at the API."""
