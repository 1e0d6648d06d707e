"""Verbs for many orders in the console: the page before them, and the start of a job."""
