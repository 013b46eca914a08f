"""What can go wrong in the embedded AWS."""

from __future__ import annotations


class CloudError(Exception):
    """Root of every error that this package raises on purpose; the message is fit for a user."""


class ResourceFailed(CloudError):
    """A resource could not be created, updated or deleted; the message becomes ResourceStatusReason.

    `physical_id`: set when something was made all the same, so that the rollback deletes it.
    """

    def __init__(self, reason: str, physical_id: str = "") -> None:
        super().__init__(reason)
        self.physical_id = physical_id


class TemplateInvalid(CloudError):
    """CloudFormation would refuse the template or the request before any resource is touched (ValidationError)."""


class StackNotFound(TemplateInvalid):
    """No stack of that name or id."""


class StackAlreadyExists(CloudError):
    """A stack of that name exists (AlreadyExistsException)."""
