"""The whole deployment on one machine: an embedded AWS, real Slurm hosts, and stand-ins for the rest."""
