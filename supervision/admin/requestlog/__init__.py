"""The request log in the console."""
