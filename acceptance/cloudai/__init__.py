"""CloudAI's scenarios: its TOML files, read, checked, brought to today's form, and written as scripts for Slurm.

Facts about CloudAI: github.com/NVIDIA/cloudai at 5b5c0f72 (2026-08-05), called head, and its user guide of 2024.
"""
