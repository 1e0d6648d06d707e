"""Requests for a second operator's approval, at the API."""
