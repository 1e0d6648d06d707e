"""The migrations of the project's accounts."""
