"""The deletions: one thing or stack at a time, each waited for in bounded time.

Everything here may be run again: what is gone already counts as done, what AWS is deleting already is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from slipway.aws.calls import Aws, Refused, Unasked
from slipway.errors import EnvironmentFault, SlipwayError
from slipway.leftovers import (
    BACKUP,
    BUCKET,
    FILE_SYSTEM,
    GROUP,
    LOG_GROUP,
    PARAMETER,
    SNAPSHOT,
    VOLUME,
    WORKSPACE,
)
from slipway.teardown.plan import STACK, Step
from slipway.teardown.stacks import CLUSTER_TYPE, describe
from slipway.text import duration, listed

POLL_S = 10.0
SAY_S = 60.0  # without a change a line of progress is printed this often
DELETIONS = 3  # of a stack: a deletion that failed is tried again after what held it is gone
UNASKED_IN_A_ROW = 3
MOST_NAMED = 6
OBJECTS_AT_ONCE = 1000  # S3's limit of DeleteObjects
ABSENT = {
    "BackupNotFound", "FileSystemNotFound", "DataRepositoryAssociationNotFound", "InvalidVolume.NotFound",
    "InvalidSnapshot.NotFound", "InvalidGroup.NotFound", "NoSuchBucket", "ResourceNotFoundException",
    "ParameterNotFound", "NoSuchUpload", "InvalidPermission.NotFound",
}  # fmt: skip
CHANGING = {"OperationAborted", "OperationAbortedException", "ConflictException"}
"""Another request changes the thing: S3's error codes, DeleteLogGroup and Managed Prometheus' DeleteWorkspace."""


class Held(SlipwayError):
    """AWS did not delete it; the text names what holds it and the repair."""


class Worker:
    """Deletes with `aws`; `say` gets the lines of progress. `limit_s` bounds the wait for one step, in seconds."""

    def __init__(self, aws: Aws, say: Callable[[str], None], limit_s: float) -> None:
        self._aws = aws
        self._say = say
        self._limit_s = limit_s
        self._deleters: dict[str, Callable[[str], None]] = {
            STACK: self._stack,
            FILE_SYSTEM: self._file_system,
            BACKUP: self._simple("fsx", "delete_backup", "BackupId"),
            VOLUME: self._simple("ec2", "delete_volume", "VolumeId"),
            SNAPSHOT: self._simple("ec2", "delete_snapshot", "SnapshotId"),
            BUCKET: self._bucket,
            GROUP: self._group,
            LOG_GROUP: self._simple("logs", "delete_log_group", "logGroupName"),
            PARAMETER: self._simple("ssm", "delete_parameter", "Name"),
            WORKSPACE: self._simple("amp", "delete_workspace", "workspaceId"),
        }

    def delete(self, step: Step) -> None:
        """Do one step.

        Raises Held if AWS refuses, EnvironmentFault if it is not done in time, Unasked if AWS does not answer.
        """
        self._deleters[step.kind](step.id)

    # ---- waiting ----

    def _wait(self, what: str, state: Callable[[], str]) -> None:
        """Wait until `state` returns an empty text; other texts are printed when they change, and now and then."""
        began = last = time.monotonic()
        before = ""
        while text := self._patient(state):
            now = time.monotonic()
            if now - began > self._limit_s:
                raise EnvironmentFault(
                    f"{what}: {text} for {duration(now - began)}, longer than this command waits; AWS goes on with it. "
                    "Hint: run the same command again, it goes on from there (--timeout is the minutes for one step)"
                )
            if text != before or now - last >= SAY_S:
                self._say(f"  {what}: {text} ({duration(now - began)})")
                before, last = text, now
            time.sleep(POLL_S)

    def _patient(self, state: Callable[[], str]) -> str:
        """The state; a wait of an hour survives that AWS gives no answer for a moment."""
        for _ in range(UNASKED_IN_A_ROW):
            try:
                return state()
            except Unasked as error:
                if error.permission:
                    raise
                self._say(f"  {error}; asking again")
                time.sleep(POLL_S)
        return state()

    def _answer(
        self, service: str, operation: str, *, one_page: bool = False, **parameters: Any
    ) -> dict[str, Any] | None:
        """The answer, None if AWS says that the thing does not exist. Other refusals are Held."""
        try:
            return self._aws.act(service, operation, one_page=one_page, **parameters)
        except Refused as error:
            if error.code in ABSENT:
                return None
            raise

    def _simple(self, service: str, operation: str, key: str) -> Callable[[str], None]:
        return lambda id: self._delete(id, service, operation, **{key: id})

    def _delete(self, id: str, service: str, operation: str, **parameters: Any) -> None:
        """Delete a thing; wait while another request, such as another teardown's, changes it."""

        def state() -> str:
            try:
                self._answer(service, operation, **parameters)
            except Refused as error:
                if error.code in CHANGING:
                    return f"another request changes it: {error.message}"
                raise Held(f"{id}: {error}") from None
            return ""

        self._wait(id, state)

    # ---- stacks ----

    def _stack(self, name: str) -> None:
        """Delete a stack in whichever state it is; after a failure release what held it, and try again."""
        stack = describe(self._aws, name)
        if stack is None:
            return
        id = stack["StackId"]
        retained: list[str] = []
        for attempt in range(1, DELETIONS + 1):
            self._wait(name, lambda: self._busy(id, other_than="DELETE_IN_PROGRESS"))
            self._begin_deletion(name, id, retained)
            self._wait(name, lambda: self._busy(id))
            if describe(self._aws, id) is None:
                return
            failed = self._failed_resources(id)
            if attempt == DELETIONS:
                raise Held(f"{name} is DELETE_FAILED: {_reasons(failed)}. Hint: {self._hint(id, failed)}")
            self._say(f"  {name}: DELETE_FAILED: {_reasons(failed)}; trying again")
            for resource in failed:
                self._release(resource)
            retained = self._without_cluster(failed)

    def _busy(self, id: str, other_than: str = "") -> str:
        stack = describe(self._aws, id)
        status = stack["StackStatus"] if stack else ""
        # A change set that was never executed leaves REVIEW_IN_PROGRESS for ever.
        return status if status.endswith("_IN_PROGRESS") and status not in (other_than, "REVIEW_IN_PROGRESS") else ""

    def _begin_deletion(self, name: str, id: str, retained: list[str]) -> None:
        stack = describe(self._aws, id)
        if stack is None or stack["StackStatus"] == "DELETE_IN_PROGRESS":
            return
        keep: dict[str, Any] = (
            {"RetainResources": retained} if retained and stack["StackStatus"] == "DELETE_FAILED" else {}
        )
        try:
            self._aws.act("cloudformation", "delete_stack", StackName=id, **keep)
        except Refused as error:
            now = describe(self._aws, id)
            if now is None or now["StackStatus"] == "DELETE_IN_PROGRESS":
                return  # another teardown was quicker
            protection = "aws cloudformation update-termination-protection --no-enable-termination-protection"
            hint = f". Hint: {protection} --stack-name {name}" if "TerminationProtection" in error.message else ""
            raise Held(f"{name}: {error}{hint}") from None

    def _failed_resources(self, id: str) -> list[dict[str, Any]]:
        answer = self._aws.act("cloudformation", "list_stack_resources", StackName=id)
        return [item for item in answer["StackResourceSummaries"] if item["ResourceStatus"] == "DELETE_FAILED"]

    def _release(self, resource: dict[str, Any]) -> None:
        """Remove the rules of other groups that refer to a group which could not be deleted."""
        if resource["ResourceType"] == "AWS::EC2::SecurityGroup":
            self._revoke_references(resource["PhysicalResourceId"])

    def _without_cluster(self, failed: list[dict[str, Any]]) -> list[str]:
        """The custom resource of the cluster, when ParallelCluster's stack is gone and only its answer is missing."""
        return [
            item["LogicalResourceId"]
            for item in failed
            if item["ResourceType"] == CLUSTER_TYPE and describe(self._aws, item["PhysicalResourceId"]) is None
        ]

    def _hint(self, stack_id: str, failed: list[dict[str, Any]]) -> str:
        """What is in the way and not the stack's own, where EC2 can name it."""
        answer = self._aws.act("cloudformation", "list_stack_resources", StackName=stack_id)
        own = {item.get("PhysicalResourceId") for item in answer["StackResourceSummaries"]}
        for resource in failed:
            id = str(resource.get("PhysicalResourceId", ""))
            for kind, name in (("AWS::EC2::VPC", "vpc-id"), ("AWS::EC2::Subnet", "subnet-id"), GROUP_FILTER):
                if resource["ResourceType"] == kind and (inside := self._inside(name, id, own)):
                    return f"delete what is not this cluster's first ({inside}), then run the same command again"
        return "repair the reason, then run the same command again"

    def _inside(self, name: str, id: str, own: Collection[str | None] = ()) -> str:
        filters = [{"Name": name, "Values": [id]}]
        found = [
            (item["NetworkInterfaceId"], item.get("Description") or "no description")
            for item in self._aws.act("ec2", "describe_network_interfaces", Filters=filters)["NetworkInterfaces"]
        ]
        if name == "vpc-id":
            groups = self._aws.act("ec2", "describe_security_groups", Filters=filters)["SecurityGroups"]
            found += [(item["GroupId"], item["GroupName"]) for item in groups if item["GroupName"] != "default"]
            endpoints = self._aws.act("ec2", "describe_vpc_endpoints", Filters=filters)["VpcEndpoints"]
            found += [(item["VpcEndpointId"], item["ServiceName"]) for item in endpoints if _exists(item)]
        return listed([f"{thing} ({what})" for thing, what in found if thing not in own], MOST_NAMED)

    # ---- the file system ----

    def _file_system(self, id: str) -> None:
        """Delete its associations, wait, then delete it and wait: its network interfaces hold subnet and group."""
        system = self._file_system_state(id)
        if system not in ("", "DELETING"):
            self._associations(id)
            try:
                self._answer("fsx", "delete_file_system", FileSystemId=id)
            except Refused as error:
                raise Held(f"{id}: {error}") from None
        self._wait(id, lambda: self._file_system_state(id))

    def _file_system_state(self, id: str) -> str:
        answer = self._answer("fsx", "describe_file_systems", FileSystemIds=[id])
        return str(answer["FileSystems"][0].get("Lifecycle", "")) if answer and answer["FileSystems"] else ""

    def _associations(self, id: str) -> None:
        """Delete them without their files: that would be a change to export, and the bucket keeps its objects."""
        for item in self._live_associations(id):
            if item["Lifecycle"] != "DELETING":
                self._say(f"  {id}: association {item['FileSystemPath']} ({item['AssociationId']}) is deleted")
                self._answer(
                    "fsx",
                    "delete_data_repository_association",
                    AssociationId=item["AssociationId"],
                    DeleteDataInFileSystem=False,
                )
        self._wait(id, lambda: "its associations are being deleted" if self._live_associations(id) else "")

    def _live_associations(self, id: str) -> list[dict[str, Any]]:
        filters = [{"Name": "file-system-id", "Values": [id]}]
        answer = self._answer("fsx", "describe_data_repository_associations", Filters=filters)
        return list(answer["Associations"]) if answer else []

    # ---- the security group ----

    def _group(self, id: str) -> None:
        self._revoke_references(id)
        try:
            self._answer("ec2", "delete_security_group", GroupId=id)
        except Refused as error:
            users = self._inside("group-id", id)
            raise Held(f"{id}: {error}{f'. It is used by {users}' if users else ''}") from None

    def _revoke_references(self, id: str) -> None:
        """Revoke the rules of other groups that refer to the group `id`: EC2 refuses to delete it before."""
        for name, key, operation in (
            ("ip-permission.group-id", "IpPermissions", "revoke_security_group_ingress"),
            ("egress.ip-permission.group-id", "IpPermissionsEgress", "revoke_security_group_egress"),
        ):
            filters = [{"Name": name, "Values": [id]}]
            for group in self._aws.act("ec2", "describe_security_groups", Filters=filters)["SecurityGroups"]:
                rules = [rule for permission in group[key] for rule in _only_pairs(permission, id)]
                if rules and group["GroupId"] != id:
                    self._say(f"  {group['GroupId']}: its {len(rules)} rules that refer to {id} are removed")
                    self._answer("ec2", operation, GroupId=group["GroupId"], IpPermissions=rules)

    # ---- the bucket ----

    def _bucket(self, name: str) -> None:
        """Empty the bucket, old versions and unfinished uploads too, and delete it."""
        try:
            self._empty(name)
            self._delete(name, "s3", "delete_bucket", Bucket=name)
        except Refused as error:
            raise Held(f"{name}: {error}") from None

    def _empty(self, name: str) -> None:
        count, said = 0, time.monotonic()
        while True:
            page = self._page(name)
            versions = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
            if not versions:
                break
            objects = [{"Key": item["Key"], "VersionId": item["VersionId"]} for item in versions]
            answer = self._answer("s3", "delete_objects", Bucket=name, Delete={"Objects": objects, "Quiet": True}) or {}
            if errors := answer.get("Errors"):
                first = errors[0]
                raise Held(
                    f"{name}: {len(errors)} objects cannot be deleted, such as {first['Key']}: {first.get('Message')}"
                )
            count += len(objects)
            if time.monotonic() - said >= SAY_S:
                self._say(f"  {name}: {count:,} versions of objects are deleted")
                said = time.monotonic()
        uploads = self._answer("s3", "list_multipart_uploads", Bucket=name) or {}
        for upload in uploads.get("Uploads", ()):
            self._answer("s3", "abort_multipart_upload", Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])

    def _page(self, name: str) -> dict[str, Any]:
        """The first versions that are left: a bucket may have millions, which are not listed as a whole."""
        return self._answer("s3", "list_object_versions", one_page=True, Bucket=name, MaxKeys=OBJECTS_AT_ONCE) or {}


GROUP_FILTER = ("AWS::EC2::SecurityGroup", "group-id")


def _exists(endpoint: dict[str, Any]) -> bool:
    """EC2 lists a deleted endpoint for a while."""
    return str(endpoint.get("State", "")).lower() not in ("deleting", "deleted")


def _only_pairs(permission: dict[str, Any], id: str) -> Iterator[dict[str, Any]]:
    """The part of a permission that refers to the group, in the form that revoking takes."""
    keys = ("GroupId", "Description")
    pairs = [
        {key: pair[key] for key in keys if key in pair}
        for pair in permission.get("UserIdGroupPairs", ())
        if pair.get("GroupId") == id
    ]
    if pairs:
        ports: dict[str, Any] = {key: permission[key] for key in ("FromPort", "ToPort") if key in permission}
        yield {"IpProtocol": permission["IpProtocol"], **ports, "UserIdGroupPairs": pairs}


def _reasons(failed: list[dict[str, Any]]) -> str:
    texts = [f"{item['LogicalResourceId']}: {item.get('ResourceStatusReason') or 'no reason'}" for item in failed]
    return listed(texts, MOST_NAMED) or "CloudFormation names no resource"
