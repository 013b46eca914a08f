"""Print the keys of ParallelCluster's configuration as a tree, read from its own schema. Runs in pcluster's environment.

`python pcluster_schema.py > slipway/data/pcluster_schema.json` after a change of ParallelCluster's release. A leaf is
named by what it takes: text, whole (number), number, truth (value), free (a table with any keys), any.
"""

from __future__ import annotations

import json
import logging
from importlib.metadata import version
from typing import Any

logging.disable(logging.CRITICAL)

from marshmallow import fields  # noqa: E402
from pcluster.schemas.cluster_schema import ClusterSchema, OneOrManyCustomActionField  # noqa: E402

KINDS = (
    (fields.Bool, "truth"),
    (fields.Int, "whole"),
    (fields.Float, "number"),
    (fields.Dict, "free"),
    (fields.Str, "text"),
)


def tree(schema: Any) -> dict[str, Any]:
    return {field.data_key or name: kind(field) for name, field in sorted(schema.fields.items())}


def kind(field: Any) -> Any:
    if isinstance(field, OneOrManyCustomActionField):  # its form is chosen while it is read: one script, or a sequence
        script = {"Script": "text", "Args": ["text"]}
        return {**script, "Sequence": [script]}
    if isinstance(field, fields.Nested):
        table = tree(field.schema)
        return [table] if field.many else table
    if isinstance(field, fields.List):
        return [kind(field.inner)]
    return next((word for cls, word in KINDS if isinstance(field, cls)), "any")


if __name__ == "__main__":
    source = f"aws-parallelcluster {version('aws-parallelcluster')}, pcluster/schemas/cluster_schema.py"
    print(json.dumps({"source": source, "keys": tree(ClusterSchema(cluster_name="any"))}, indent=1))
