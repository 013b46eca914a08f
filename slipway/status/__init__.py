"""`slipway status`: what exists, what happens now, and what is wrong.

`stacks.py` reads CloudFormation, `head.py` asks the head node through Systems Manager, `judge.py` says what is
wrong (pure), `screen.py` shows it, `command.py` joins them.
"""
