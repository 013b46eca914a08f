"""The variables of the public deployment runbooks (`env_vars`).

Names: the runbook's own, those that its `create_config.sh` writes (awsome-distributed-training, geniac branch), and
those of its templates, which take the outputs of the prerequisites stack by their names.
"""

from __future__ import annotations

REGION = ("AWS_REGION",)
INSTANCE_TYPE = ("INSTANCE",)
COUNT = ("NUM_INSTANCES",)
RESERVATION = ("CAPACITY_RESERVATION_ID",)
KEY_PAIR = ("KEY_PAIR_NAME", "KEYPAIR_NAME")
REMOTE_WRITE = ("AMPREMOTEWRITEURL",)
VPC = ("VPC_ID",)
HEAD_NODE_SUBNET = ("PUBLIC_SUBNET_ID", "PublicSubnet")
COMPUTE_SUBNET = ("PRIVATE_SUBNET_ID", "PrimaryPrivateSubnet")
SECURITY_GROUP = ("SECURITY_GROUP", "SecurityGroup")
LUSTRE = ("FSX_ID", "FSxLustreFilesystemId")
HOME_VOLUME = ("FSXO_ID", "FSxORootVolumeId")
MOUNT_NAME = ("FSX_MOUNTNAME",)

HOME_MOUNT = ("fsx-openzfs", "/home")
"""Kind and place at which the runbook's templates mount the volume of HOME_VOLUME."""
QUEUE = "compute-gpu"
"""The queue of the runbook's templates."""
NO_KEY_PAIR = "REMOVE_THIS_LINE_AND_A_LINE_BEFORE"
"""What `create_config.sh` writes for a key pair that was not named."""
