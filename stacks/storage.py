"""Storage: the bucket, FSx for Lustre before it, the associations between them, and an EBS volume for /home.

Data outlive the stack: the bucket, the file system with its security group, the volume. Only a creation that fails
takes them away again: a file system without a cluster would only cost money. An association is deleted with its
settings or with the stack; the data on both of its sides stay.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from aws_cdk import (
    Aws,
    CfnOutput,
    CfnResource,
    CfnWaitConditionHandle,
    Duration,
    Fn,
    RemovalPolicy,
    Stack,
    Tags,
    Token,
)
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from slipway.settings import RESULTS_PREFIX, Association, Fsx, Home, Settings
from stacks.checks import accept, accept_in_template
from stacks.keys import grant_any_key
from stacks.network import NetworkStack, close_egress

LUSTRE_VERSION = "2.15"
LUSTRE_PORTS = (ec2.Port.tcp(988), ec2.Port.tcp_range(1018, 1023))  # FSx for Lustre user guide, access control
KEPT = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
CHANGES = ["NEW", "CHANGED", "DELETED"]
OLD_VERSIONS_KEPT = Duration.days(90)
BROKEN_UPLOADS_KEPT = Duration.days(7)


class StorageStack(Stack):
    """`bucket_name` for results; `file_system_id` and `home_volume_id` (empty without one) for the nodes.

    The ids are read through exports that exist for our own and for existing resources alike. CloudFormation refuses
    another value while a cluster uses them, before anything changes: ParallelCluster would refuse it too, when our own
    file system has left this stack already. A cluster can get another bucket, so its name is read without an export.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: Settings,
        network: NetworkStack,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, id, **kwargs)
        storage = settings.storage
        self._is_new_bucket = storage.bucket is None
        self.bucket = self._existing_bucket(storage.bucket) if storage.bucket else self._new_bucket()
        self.bucket_name = storage.bucket or self._weak("BucketName")
        file_system_id = storage.fsx.file_system_id or self._new_file_system(storage.fsx, network)
        self._associations(storage.associations, file_system_id)
        self.file_system_id = self._exported("FileSystemId", file_system_id)
        self.home_volume_id = ""
        if storage.home.kind == "ebs":
            volume_id = storage.home.volume_id or self._new_home(storage.home, settings)
            self.home_volume_id = self._exported("HomeVolumeId", volume_id)
        CfnOutput(self, "BucketName", value=self.bucket.bucket_name)
        # Does nothing. The CDK CLI deploys no stack without a resource, and the cluster reads this one's outputs.
        CfnWaitConditionHandle(self, "Outputs")

    def _exported(self, id: str, value: str) -> str:
        """Return the import, for other stacks, of an output of this name."""
        name = f"{self.stack_name}:{id}"
        CfnOutput(self, id, value=value, export_name=name)
        return Fn.import_value(name)

    def _weak(self, output: str) -> str:
        """Return a reference, for other stacks, to an output which may go while they use it."""
        return Token.as_string({"Fn::GetStackOutput": {"StackName": self.stack_name, "OutputName": output}})

    def grant_write_results(self, policy: iam.ManagedPolicy) -> None:
        """Add acceptance reports; nothing else of the bucket is read, replaced in silence (versions) or deleted."""
        actions = ["s3:PutObject", "s3:AbortMultipartUpload"]
        arns = [f"arn:{Aws.PARTITION}:s3:::{self.bucket_name}/{RESULTS_PREFIX}*"]
        iam.Grant.add_to_principal(grantee=policy, actions=actions, resource_arns=arns)
        name = self.resolve(self.bucket_name)
        shown = name if isinstance(name, str) else json.dumps(name, separators=(",", ":"))
        every_result = f"arn:<AWS::Partition>:s3:::{shown}/{RESULTS_PREFIX}*"
        accept(policy, f"IAM5[Resource::{every_result}]", "the names of runs are not known at deployment")
        if not self._is_new_bucket:
            self._grant_encrypt_results(policy)

    def _grant_encrypt_results(self, policy: iam.ManagedPolicy) -> None:
        """An existing bucket may have a key of the site's own, which its name does not say; see grant_any_key."""
        arns = [self.bucket.bucket_arn, self.bucket.arn_for_objects(f"{RESULTS_PREFIX}*")]  # with a bucket key, without
        grant_any_key(policy, "s3", ["kms:GenerateDataKey", "kms:Decrypt"], {"kms:EncryptionContext:aws:s3:arn": arns})

    def _new_bucket(self) -> s3.IBucket:
        bucket = s3.Bucket(
            self,
            "Bucket",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    noncurrent_version_expiration=OLD_VERSIONS_KEPT,
                    abort_incomplete_multipart_upload_after=BROKEN_UPLOADS_KEPT,
                )
            ],
            removal_policy=KEPT,
        )
        for value in (bucket.bucket_arn, bucket.bucket_name):
            self.export_value(value)  # older deployments of the cluster import them under these names
        accept(bucket, "S1", "access logs need a second bucket and its retention; CloudTrail data events show the same")
        return bucket

    def _existing_bucket(self, name: str) -> s3.IBucket:
        return s3.Bucket.from_bucket_name(self, "Bucket", name)

    def _new_file_system(self, settings: Fsx, network: NetworkStack) -> str:
        """In the nodes' own group when that is an existing one, which is not ours to add rules to."""
        if network.has_existing_security_group:
            group = network.node_security_group
        else:
            group = self._security_group(network.vpc, network.node_security_group)
        file_system = self._file_system(settings, subnet_id=network.compute_subnet_id, security_group=group)
        file_system.node.add_dependency(group)  # with its rules: FSx refuses a group that does not let Lustre pass yet
        self.export_value(file_system.ref)  # older deployments of the cluster import it under this name
        return file_system.ref

    def _new_home(self, home: Home, settings: Settings) -> str:
        """In the head node's zone. ParallelCluster attaches it, and makes a file system on an empty one."""
        volume = ec2.CfnVolume(
            self,
            "HomeVolume",
            availability_zone=settings.zone,
            size=home.size_gib,
            volume_type="gp3",
            encrypted=True,
        )
        volume.apply_removal_policy(KEPT)
        accept_in_template(
            volume, "W3010", "the zone is that of the settings: a volume is attached within its zone only"
        )
        Tags.of(volume).add("Name", f"{settings.name}-home")
        return volume.ref

    def _security_group(self, vpc: ec2.IVpc, nodes: ec2.ISecurityGroup) -> ec2.SecurityGroup:
        """Lustre's ports between servers and nodes: the servers open connections to their clients as well."""
        group = ec2.SecurityGroup(
            self,
            "FileSystemSecurityGroup",
            vpc=vpc,
            description="FSx for Lustre and its clients",
            allow_all_outbound=False,
        )
        close_egress(group)
        for port in LUSTRE_PORTS:
            for peer in (group, nodes):
                group.add_ingress_rule(peer, port, "Lustre")
                group.add_egress_rule(peer, port, "Lustre")
            nodes.add_ingress_rule(group, port, "Lustre servers", remote_rule=True)  # remote: the rule is this stack's
        for part in group.node.find_all():
            if isinstance(part, CfnResource):
                part.apply_removal_policy(KEPT)
        return group

    def _file_system(self, settings: Fsx, *, subnet_id: str, security_group: ec2.ISecurityGroup) -> fsx.CfnFileSystem:
        file_system = fsx.CfnFileSystem(
            self,
            "FileSystem",
            file_system_type="LUSTRE",
            file_system_type_version=LUSTRE_VERSION,
            storage_type="SSD",
            storage_capacity=settings.capacity_gib,
            subnet_ids=[subnet_id],
            security_group_ids=[security_group.security_group_id],
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type=settings.deployment.upper().replace("-", "_"),
                per_unit_storage_throughput=settings.throughput_mb_s_per_tib,
                data_compression_type=settings.compression.upper(),
            ),
        )
        file_system.apply_removal_policy(KEPT)
        return file_system

    def _associations(self, associations: Sequence[Association], file_system_id: str) -> None:
        """One after the other: FSx times out when it works on several at once.

        Ids come from the paths: numbers would change with the order in the file, and FSx refuses to make the same path
        again before the old association is deleted.
        """
        before: fsx.CfnDataRepositoryAssociation | None = None
        for association in associations:
            this = self._association(_association_id(association.path), association, file_system_id)
            if before:
                this.add_resource_dependency(before)
            before = this

    def _association(self, id: str, association: Association, file_system_id: str) -> fsx.CfnDataRepositoryAssociation:
        kind = fsx.CfnDataRepositoryAssociation
        imports = kind.AutoImportPolicyProperty(events=CHANGES) if association.import_changes else None
        exports = kind.AutoExportPolicyProperty(events=CHANGES) if association.export_changes else None
        return fsx.CfnDataRepositoryAssociation(
            self,
            id,
            file_system_id=file_system_id,
            file_system_path=association.path,
            data_repository_path=self.bucket.s3_url_for_object(association.prefix or None),
            batch_import_meta_data_on_create=True,
            s3=kind.S3Property(auto_import_policy=imports, auto_export_policy=exports),
        )


def _association_id(path: str) -> str:
    """Words of the path for people, and a digest that keeps /a-b and /a/b apart."""
    words = "".join(word.capitalize() for word in re.split("[^A-Za-z0-9]+", path))
    return f"Association{words[:100]}{hashlib.sha256(path.encode()).hexdigest()[:8].upper()}"
