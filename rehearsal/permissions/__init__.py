"""Permissions of the rehearsal: who sends a request, what it needs, and whether that role's policies allow it.

`evaluator.py` decides by policy documents alone, `actions.py` turns a request into IAM's actions and resources,
`authority.py` does both for the embedded AWS and keeps the record.
"""
