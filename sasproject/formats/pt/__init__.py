"""The times of pages in this language."""
