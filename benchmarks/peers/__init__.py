"""The peers, as their users would write them. Run in an environment of their own (`requirements-peers.txt`)."""
