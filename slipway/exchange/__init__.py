"""Exchange with other tools: import and export ParallelCluster configurations and runbook variables; `slipway init`."""
