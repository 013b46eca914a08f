"""What stands in for parts that one machine cannot have (GPU, EFA, NCCL, enroot), and the script that makes them."""
