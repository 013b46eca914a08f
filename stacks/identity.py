"""What an account asks of every role and policy: a permissions boundary, and names that begin with a prefix."""

from __future__ import annotations

import hashlib

import jsii
from aws_cdk import App, Aspects, IAspect, Stack
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from slipway.settings import Iam

ROLE_NAME_CHARACTERS, POLICY_NAME_CHARACTERS = 64, 128  # IAM user guide, quotas
DIGEST_CHARACTERS = 8


def apply_site_rules(app: App, asked: Iam) -> None:
    """Bound and name the roles and policies of all stacks. What ParallelCluster makes: slipway/cluster_config.py."""
    if asked.permissions_boundary:
        policy = iam.ManagedPolicy.from_managed_policy_arn(app, "Boundary", asked.permissions_boundary)
        iam.PermissionsBoundary.of(app).apply(policy)
    if asked.name_prefix:
        Aspects.of(app).add(NamePrefix(asked.name_prefix))


@jsii.implements(IAspect)
class NamePrefix:
    """Gives each role and managed policy a name: prefix, stack, logical id, and a digest against equal names.

    IAM's names are those of the whole account, so the region is part of the digest.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def visit(self, node: IConstruct) -> None:
        """Name one construct of a stack, if it is of IAM."""
        if isinstance(node, iam.CfnRole):
            node.role_name = self._name(node, ROLE_NAME_CHARACTERS)
        elif isinstance(node, iam.CfnManagedPolicy):
            node.managed_policy_name = self._name(node, POLICY_NAME_CHARACTERS)

    def _name(self, node: iam.CfnRole | iam.CfnManagedPolicy, limit: int) -> str:
        stack = Stack.of(node)
        digest = hashlib.sha256(f"{stack.region}/{node.node.path}".encode()).hexdigest()[:DIGEST_CHARACTERS]
        name = f"{self._prefix}{stack.stack_name}-{stack.resolve(node.logical_id)}"
        return f"{name[: limit - DIGEST_CHARACTERS - 1]}-{digest}"
