"""Questions to AWS before anything is paid for: read-only, side by side, each with a separate time-out.

`model` defines a question and an answer, `asking` runs the questions, `questions` lists them, and `command` prints the
answers. `policy` reads resource policies. Each other module has the questions or facts of one subject.
"""
