"""The CDK app outside the checkout: `cdk deploy --all --app 'slipway app' --context settings=FILE`."""

from __future__ import annotations

import json
import os
import runpy
import sys

from slipway.places import FILES

CONTEXT = "CDK_CONTEXT_JSON"  # how the CDK CLI hands the context to the app


def run_app() -> None:
    """Run app.py with the context of cdk.json, so that the templates are those of the checkout."""
    file = json.loads((FILES / "cdk.json").read_text(encoding="utf-8"))
    reporting = {"aws:cdk:version-reporting": file["versionReporting"]}
    os.environ[CONTEXT] = json.dumps({**file["context"], **json.loads(os.environ.get(CONTEXT, "{}")), **reporting})
    sys.path.insert(0, str(FILES))  # the package stacks is next to app.py
    runpy.run_path(str(FILES / "app.py"), run_name="__main__")
