"""The REST API, version 1: thin doors over the shop's services and queries."""
