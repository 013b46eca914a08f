"""From another tool's file to a settings file; nothing of it is dropped in silence."""

from slipway.importer.env import import_env
from slipway.importer.pcluster import import_pcluster

__all__ = ["import_env", "import_pcluster"]
