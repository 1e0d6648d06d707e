"""Customers' accounts: sign-in by mail, verified mail addresses, the address book, and the history of orders."""
