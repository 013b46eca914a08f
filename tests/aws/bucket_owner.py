"""S3's question after the owner: a request that expects another owner than the bucket has is refused with 403."""

from __future__ import annotations

from typing import Any

from moto.s3.responses import S3Response

_HEADER = "x-amz-expected-bucket-owner"
_head_bucket = S3Response.head_bucket


def _with_owner(self: S3Response) -> Any:
    answer = _head_bucket(self)
    expected = self.headers.get(_HEADER)
    if answer[0] == 200 and expected and expected != self.backend.head_bucket(self.bucket_name).account_id:
        return 403, {}, ""
    return answer


def install_owners() -> None:
    """Give moto's HeadBucket the check."""
    S3Response.head_bucket = _with_owner
