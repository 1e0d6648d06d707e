"""One agent per service. An agent calls the service's API and translates its errors for the engine; it decides nothing else."""
