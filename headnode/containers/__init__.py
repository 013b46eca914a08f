"""The importer behind `download-ngc-containers.sh`: container images from registries to the shared file system.

Runs on nodes: Python 3.9, standard library only.
"""
