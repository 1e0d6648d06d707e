"""One agent per service: each speaks its service's language, translates its errors and decides nothing else."""
