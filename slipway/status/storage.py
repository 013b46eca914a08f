"""The FSx file system of a cluster and its associations with buckets: their state, as FSx says it."""

from __future__ import annotations

from typing import Any

from slipway.aws.calls import Aws, Pending, Refused, Unasked

MISCONFIGURED = (
    "nothing is imported from or exported to the bucket: let FSx's service role reach it (slipway preflight FILE, "
    "bucket-access), then: aws fsx update-data-repository-association --association-id "
)


class StorageReader:
    """Begins its questions at once; `read` waits."""

    def __init__(self, aws: Aws, file_system_id: str) -> None:
        self._questions: list[tuple[str, Pending]] = []
        if file_system_id:
            filters = [{"Name": "file-system-id", "Values": [file_system_id]}]
            associations = aws.start("fsx", "describe_data_repository_associations", Filters=filters)
            self._questions = [
                ("FileSystems", aws.start("fsx", "describe_file_systems", FileSystemIds=[file_system_id])),
                ("Associations", associations),
            ]

    def read(self, notes: list[str]) -> list[dict[str, Any]]:
        """File system and associations; what AWS does not answer becomes a note."""
        found: list[dict[str, Any]] = []
        for key, question in self._questions:
            try:
                found += [_row(one) for one in question.result()[key]]
            except (Unasked, Refused) as error:
                notes.append(f"FSx ({key}): {error}")
        return found


def _row(one: dict[str, Any]) -> dict[str, Any]:
    association = "AssociationId" in one
    identity = one["AssociationId"] if association else one["FileSystemId"]
    reason = (one.get("FailureDetails") or {}).get("Message", "")
    path, bucket = one.get("FileSystemPath", ""), one.get("DataRepositoryPath", "")
    return {
        "kind": "association" if association else "file system",
        "id": identity,
        "what": f"{path} with {bucket}" if association else "it",
        "state": one["Lifecycle"],
        "reason": " ".join(reason.split()),
        "repair": f"{MISCONFIGURED}{identity}" if association else "the FSx console of the region shows it",
    }
