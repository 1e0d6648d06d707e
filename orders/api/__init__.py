"""The REST API, version 1: thin views over the shop's services and queries."""
