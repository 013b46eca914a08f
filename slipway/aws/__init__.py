"""Access to AWS: `calls` makes each API call once and bounded in time, `session` finds the credentials."""
