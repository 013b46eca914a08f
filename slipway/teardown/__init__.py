"""`slipway teardown`: takes a cluster down in the order that AWS allows, and deletes data only on request.

From bottom to top; a module imports only those above it in this list:

    stacks.py   the cluster's stacks as CloudFormation has them, and whether they are ours
    plan.py     what goes, in which order, what stays and why; pure
    work.py     deletes one thing or stack, waits for it in bounded time, and names what holds it
    command.py  the command: prints the plan, asks, works, prints the end; the IAM policy
"""
