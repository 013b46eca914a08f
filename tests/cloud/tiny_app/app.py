"""A small CDK app: a bucket and a topic, a file asset, a nested stack; `-c broken=yes` adds what cannot be made."""

from __future__ import annotations

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_sns as sns

app = cdk.App()
environment = cdk.Environment(account="123456789012", region="us-east-1")
first = cdk.Stack(app, "first", env=environment)
bucket = s3.Bucket(first, "Data", enforce_ssl=True)
second = cdk.Stack(app, "second", env=environment)
asset = assets.Asset(second, "File", path=str(Path(__file__)))
nested = cdk.NestedStack(second, "Nested")
sns.Topic(nested, "Topic")
cdk.CfnOutput(second, "Where", value=asset.s3_object_url)
cdk.CfnOutput(second, "Other", value=bucket.bucket_name)
if app.node.try_get_context("broken"):
    cdk.CfnResource(second, "Broken", type="AWS::Quantum::Computer")
app.synth()
