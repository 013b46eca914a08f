"""slipway-health: judges one compute node every minute and takes it out of Slurm's hands when it is broken.

It is no Slurm prolog: no job ever waits for it. Every question it asks is bounded in time, and so is the sum.
Runs on nodes: Python 3.9, standard library only.

`ask`     one command, bounded; a process that even SIGKILL does not end is never started twice
`facts`   what the node is: its instance type's hardware, its queue, its name in Slurm
`smi`     what nvidia-smi prints, as data
`xid`     the driver's error numbers in the kernel log
`node`    what a run has asked the node: each question once
`checks`  the table of checks: what each looks at, its limit, its source
`judge`   runs the table, and counts how often in a row each finding failed
`slurm`   drain, never twice, never over another's reason
`report`  health.json, the Prometheus textfile, the log
`cli`     the command
"""
