"""One rehearsal: its road from `cdk deploy` to the verdict, what serves the cluster, and what the user sees."""
