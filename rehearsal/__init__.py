"""The whole deployment on one machine: an embedded AWS, real Slurm hosts, and what stands in for the rest."""
