"""What users of such clusters reported, and which rule or question finds it before anything is paid for.

Only kinds of fault that can be found beforehand are listed; docs/checks.md shows the table.
"""

from __future__ import annotations

PARALLELCLUSTER = "aws-parallelcluster"
ENROOT = "enroot"

# What was reported, where, and the rules and questions that find it.
REPORTED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "A reservation had ended, was not there any more or of another kind",
        f"{PARALLELCLUSTER} issue 6870",
        ("reservation", "reservation-one-kind"),
    ),
    (
        "A placement group together with a capacity block or another reservation: insufficient capacity",
        f"{PARALLELCLUSTER} pull request 6311, issue 4342",
        ("capacity-block-placement", "placement-reservation", "placement-groups", "reservation"),
    ),
    (
        "Static nodes found no capacity, and the creation ended in a time-out that names another cause",
        f"{PARALLELCLUSTER} issues 2447, 3373 and 3604",
        ("reservation", "unreserved-gpus", "instance-offerings"),
    ),
    (
        "More nodes than the quota allows; a quota of zero found after the head node's time-out",
        f"{PARALLELCLUSTER} issues 1375 and 3863; genai-video-super-resolution issue 3",
        ("vcpu-quotas", "node-quotas", "network-quotas"),
    ),
    (
        "The nodes' security group lacked the rule to itself on the way out: EFA hangs, error 4126",
        "awsome-distributed-training issue 546; gardener-extension-provider-aws issue 1832",
        ("security-groups", "network-acls"),
    ),
    (
        "Instances with several interfaces got no public address and reached nothing",
        "libfabric issue 6; dstack issue 2270",
        ("one-subnet", "compute-routes", "head-routes"),
    ),
    (
        "The subnet had no address left for the last nodes",
        f"dstack issue 1804; {PARALLELCLUSTER} pull request 7262",
        ("network-room", "subnets"),
    ),
    (
        "Sockets instead of EFA on a type that a list did not know",
        "sagemaker-training-toolkit pull request 241",
        ("efa-off", "efa-unused", "plugin-type", "instance-type-unknown", "instance-facts"),
    ),
    (
        "Sockets and cores of a type were taken for others",
        f"{PARALLELCLUSTER} issues 5797 and 6020",
        ("instance-facts",),
    ),
    (
        "A script of the site ran too long, or could not be fetched, and the creation failed",
        f"{PARALLELCLUSTER} issues 3939 and 5511",
        ("scripts-time", "scripts"),
    ),
    (
        "FSx could not read the bucket, or was not allowed to link it",
        f"{PARALLELCLUSTER} issues 1312 and 4199",
        ("bucket", "bucket-access", "bucket-prefixes", "deployment-permissions", "service-linked-roles"),
    ),
    (
        "A deployment type or a path that associations do not take; nothing was exported",
        f"{PARALLELCLUSTER} issue 5406; aws-fsx-csi-driver issue 412",
        ("association-scratch-1", "association-count", "association-root", "association-paths", "file-system"),
    ),
    (
        "401 from nvcr.io: the key was wrong, or had a line break",
        f"{ENROOT} issues 161 and 241",
        ("ngc-secret", "secret-region", "secret-value"),
    ),
    ("401 from ECR", f"{ENROOT} issue 59", ("image-ecr",)),
    ("An address of an image with a slash that an older enroot takes for Docker Hub", "enroot 4", ("image-slash",)),
    (
        "The plugin did not fit NCCL, the instance type or the EFA installer, and NCCL fell back in silence",
        "aws-ofi-nccl issue 241, release 1.12.1",
        ("nccl-too-old", "nccl-untested", "nccl-known-bad", "plugin-type", "plugin-unknown"),
    ),
    (
        "Large broadcasts hang, grouped receives give wrong results, NCCL deadlocks: releases that were good before",
        "deep-learning-containers pull request 6668; aws-ofi-nccl pull request 1240 and issue 1055",
        ("nccl-known-bad", "nccl-known-flaw"),
    ),
    (
        "A cluster name of more than 40 characters lost the accounting without a word",
        f"{PARALLELCLUSTER} pull request 7340",
        ("cluster-name",),
    ),
    (
        "slurmdbd did not reach its database, and the head node's boot failed",
        "aws-parallelcluster-hpc-quickstart issue 119",
        ("database", "database-region"),
    ),
    (
        "Compute nodes ended at once: the default key of EBS was a customer's",
        f"{PARALLELCLUSTER} issue 3667",
        ("ebs-key",),
    ),
    (
        "slurmctld and slurmdbd did not find or believe each other",
        f"{PARALLELCLUSTER} issue 6398",
        ("munge-secret", "slurmdbd-munge-key", "database-secret"),
    ),
    (
        "Warnings of ParallelCluster's own checks fail the custom resource",
        f"{PARALLELCLUSTER} issue 6407",
        ("efa-placement", "home-many-nodes", "slurmdbd-in-clear"),
    ),
    (
        "A deletion failed, and what was left of the cluster kept its name",
        f"{PARALLELCLUSTER} issue 6329",
        ("stack-names",),
    ),
    ("No limit on what a cluster costs", f"{PARALLELCLUSTER} issue 3205", ("budget", "budget-reader", "budget-name")),
)
