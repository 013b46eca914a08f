"""EC2's GetEbsDefaultKmsKeyId, which moto lacks: the key that was set, or the alias of AWS's own.

Compared with: EC2 API reference, GetEbsDefaultKmsKeyId (`alias/aws/ebs` where no other key was set).
"""

from __future__ import annotations

from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response


def _get(self: EC2Response) -> ActionResult:
    return ActionResult({"KmsKeyId": self.ec2_backend.default_kms_key_id or "alias/aws/ebs"})


def install_ebs_key() -> None:
    """Answer the operation."""
    EC2Response.get_ebs_default_kms_key_id = _get
