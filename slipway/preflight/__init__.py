"""Questions to AWS before anything is paid for: read-only, side by side, each with a time-out of its own.

`model` says what a question and an answer are, `aws` asks each API once and lets many wait for it, `runner` runs
the questions; every other module holds the questions of one subject.
"""
