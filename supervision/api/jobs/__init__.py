"""Bulk jobs at the API."""
