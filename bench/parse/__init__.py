"""How fast logs are read: `python -m bench.parse`."""
