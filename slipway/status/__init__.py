"""``slipway status``: what stands, what happens now, and what is not as it should be.

``stacks.py`` reads CloudFormation, ``head.py`` asks the head node through Systems Manager, ``judge.py`` says what is
wrong (pure), ``screen.py`` shows it, ``command.py`` joins them.
"""
