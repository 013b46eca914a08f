"""Stand-ins of parts that one machine cannot have (GPU, EFA, NCCL, enroot), and the script that makes them."""
