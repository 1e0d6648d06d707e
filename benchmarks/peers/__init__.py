"""The peers, written as their users would do it. They run in an environment of their own (`requirements-peers.txt`)."""
