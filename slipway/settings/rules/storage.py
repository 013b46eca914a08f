"""Rules of the file systems: FSx for Lustre, its data repository associations, /home, further mounts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from slipway.settings.model import FSX_MOUNT, Settings
from slipway.settings.rules.rule import COUNT_KEYS, PCLUSTER, Finding, rule, warning
from slipway.settings.source import Place

FSX: Place = ("storage", "fsx")
ASSOCIATIONS: Place = ("storage", "associations")
HOME: Place = ("storage", "home")
MOUNTS: Place = ("storage", "mounts")

MAX_ASSOCIATIONS = 8  # FSx API reference, CreateDataRepositoryAssociation
# pcluster/constants.py FSX_SSD_THROUGHPUT, MB/s per TiB
THROUGHPUT_MB_S_PER_TIB = {"persistent-2": (125, 250, 500, 1000), "persistent-1": (50, 100, 200)}
# GiB, FsxStorageCapacityValidator: these sizes, or any multiple of the last
SIZES_GIB = {"scratch-1": (1200, 2400, 3600)}
OTHER_SIZES_GIB = (1200, 2400)
# pcluster/constants.py MAX_EXISTING_STORAGE_COUNT; one of FSx is /fsx
MAX_EFS, MAX_FSX_MOUNTS = 20, 19
GP3_IOPS, GP3_IOPS_PER_GIB = 3000, 500  # pcluster's default, and EbsVolumeIopsValidator's ratio
MAX_NODES_ON_NFS = 100  # SharedEbsPerformanceBottleNeckValidator
EPHEMERAL = "/scratch"  # slipway/cluster_config.py
# SharedStorageMountDirValidator
RESERVED = {
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/media", "/mnt", "/opt", "/opt/intel", "/opt/parallelcluster",
    "/opt/parallelcluster/shared", "/opt/parallelcluster/shared_login_nodes", "/opt/slurm", "/proc", "/root", "/run",
    "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var",  # noqa: S108 (a name to refuse)
}  # fmt: skip
# Folders of Slipway, ParallelCluster and the system: a mount below them would hide files that the nodes need.
NEEDED = (
    "/boot", "/dev", "/etc", "/opt/amazon", "/opt/parallelcluster", "/opt/slipway", "/opt/slurm", "/proc", "/sys",
    "/usr",
)  # fmt: skip
FSX_KEYS = ("storage.fsx",)
ASSOCIATION_KEYS = ("storage.associations",)
MOUNT_KEYS = ("storage.mounts",)


def _inside(path: str, other: str) -> bool:
    """Whether one tree is inside the other, or both are the same."""
    first, second = f"{path.rstrip('/')}/", f"{other.rstrip('/')}/"
    return first.startswith(second) or second.startswith(first)


@rule(
    why="Slipway uses an existing file system as it is; values that describe another one would mislead.",
    source="Slipway: stacks/storage.py",
    keys=FSX_KEYS,
)
def fsx_existing(s: Settings) -> Iterator[Finding]:
    others = sorted(s.storage.fsx.model_fields_set - {"file_system_id"})
    if s.storage.fsx.file_system_id and others:
        text = f"an existing file system has its {', '.join(others)} already"
        yield (*FSX, "file_system_id"), text, f"leave out {', '.join(others)}"


@rule(
    why="FSx makes file systems in these steps only.",
    source=f"FSx API reference, CreateFileSystem StorageCapacity; {PCLUSTER}, FsxStorageCapacityValidator",
    keys=FSX_KEYS,
)
def fsx_capacity(s: Settings) -> Iterator[Finding]:
    fsx = s.storage.fsx
    sizes = SIZES_GIB.get(fsx.deployment, OTHER_SIZES_GIB)
    step = sizes[-1]
    if fsx.file_system_id or fsx.capacity_gib in sizes or fsx.capacity_gib % step == 0:
        return
    below = max(
        (size for size in (*sizes, fsx.capacity_gib // step * step) if 0 < size < fsx.capacity_gib), default=1200
    )
    above = min(size for size in (*sizes, (fsx.capacity_gib // step + 1) * step) if size > fsx.capacity_gib)
    listed = ", ".join(map(str, sizes[:-1]))
    text = f"must be {listed} or a multiple of {step} GiB"
    yield (*FSX, "capacity_gib"), text, f"the nearest are {below} and {above}"


@rule(
    why="Persistent file systems are made with one of these throughputs; scratch ones have 200 MB/s per TiB.",
    source=f"FSx API reference, PerUnitStorageThroughput; {PCLUSTER}, FsxStorageTypeOptionsValidator and "
    "FsxPersistentOptionsValidator",
    keys=FSX_KEYS,
)
def fsx_throughput(s: Settings) -> Iterator[Finding]:
    fsx = s.storage.fsx
    place = (*FSX, "throughput_mb_s_per_tib")
    if fsx.file_system_id:
        return
    allowed = THROUGHPUT_MB_S_PER_TIB.get(fsx.deployment)
    if allowed is None and fsx.throughput_mb_s_per_tib is not None:
        yield place, f"{fsx.deployment} has a fixed throughput", "leave it out"
    if allowed is not None and fsx.throughput_mb_s_per_tib not in allowed:
        text = f"must be one of {', '.join(map(str, allowed))} MB/s per TiB for {fsx.deployment}"
        yield place, text, f"for example {allowed[1]}"


@rule(
    why="FSx refuses a ninth association.",
    source=f"FSx API reference, CreateDataRepositoryAssociation; {PCLUSTER}, FsxDraValidator",
    keys=ASSOCIATION_KEYS,
)
def association_count(s: Settings) -> Iterator[Finding]:
    count = len(s.storage.associations)
    if count > MAX_ASSOCIATIONS:
        text = f"a file system has at most {MAX_ASSOCIATIONS} associations, here are {count}"
        yield ASSOCIATIONS, text, "join some under one prefix"


@rule(
    why="FSx supports associations on every deployment type but this one.",
    source="FSx API reference, DataRepositoryAssociation: excluding scratch_1",
    keys=(*ASSOCIATION_KEYS, *FSX_KEYS),
)
def association_scratch_1(s: Settings) -> Iterator[Finding]:
    if s.storage.associations and s.storage.fsx.deployment == "scratch-1" and not s.storage.fsx.file_system_id:
        yield ASSOCIATIONS, "a scratch-1 file system has no associations", "take scratch-2 or persistent-2"


@rule(
    why="With / as its path a file system can have this one association, made first.",
    source="FSx API reference, DataRepositoryAssociation FileSystemPath",
    keys=ASSOCIATION_KEYS,
    across=True,
)
def association_root(s: Settings) -> Iterator[Finding]:
    roots = [index for index, association in enumerate(s.storage.associations) if association.path == "/"]
    if roots and len(s.storage.associations) > 1:
        text = "/ links the whole file system and can only be the first and only association"
        yield (*ASSOCIATIONS, roots[0], "path"), text, "give it a folder"


@rule(
    why="Two associations cannot share a folder of the file system, and neither can be inside the other.",
    source="FSx API reference, DataRepositoryAssociation FileSystemPath",
    keys=ASSOCIATION_KEYS,
    across=True,
)
def association_paths(s: Settings) -> Iterator[Finding]:
    for (earlier, other), (index, association) in combinations(enumerate(s.storage.associations), 2):
        if "/" not in (association.path, other.path) and _inside(association.path, other.path):
            text = f"overlaps {other.path} of associations[{earlier}]"
            yield (*ASSOCIATIONS, index, "path"), text, "give each association a separate folder"


@rule(
    why="Each association needs a unique S3 prefix; with nested ones a change of one object would arrive twice.",
    source="FSx API reference, CreateDataRepositoryAssociation: a unique S3 bucket or prefix",
    keys=ASSOCIATION_KEYS,
    across=True,
)
def association_prefixes(s: Settings) -> Iterator[Finding]:
    for (earlier, other), (index, association) in combinations(enumerate(s.storage.associations), 2):
        if _inside(association.prefix or "/", other.prefix or "/"):
            text = f"overlaps {other.prefix!r} of associations[{earlier}]"
            yield (*ASSOCIATIONS, index, "prefix"), text, "give each association a separate prefix"


@rule(
    why="A volume is made with a size, and ParallelCluster's 3000 IOPS of gp3 need at least 6 GiB.",
    source=f"{PCLUSTER}, EbsVolumeIopsValidator and EBS_VOLUME_TYPE_IOPS_DEFAULT",
    keys=("storage.home",),
)
def home_size(s: Settings) -> Iterator[Finding]:
    home = s.storage.home
    least = GP3_IOPS // GP3_IOPS_PER_GIB
    if home.kind == "ebs" and home.size_gib is None and home.volume_id is None:
        yield HOME, "an EBS home needs size_gib", "for example size_gib: 500; or volume_id for an existing volume"
    elif home.kind == "ebs" and home.size_gib is not None and home.size_gib < least:
        text = f"a gp3 volume with {GP3_IOPS} IOPS has at least {least} GiB"
        yield (*HOME, "size_gib"), text, "for example size_gib: 500"


@rule(
    why="Without an EBS volume /home is a folder of the root volume and has no separate size.",
    source="Slipway: a value that does nothing is a mistake",
    keys=("storage.home",),
)
def home_no_size(s: Settings) -> Iterator[Finding]:
    if s.storage.home.kind == "head-node" and s.storage.home.size_gib is not None:
        yield (*HOME, "size_gib"), "only an EBS home has a size", "set kind: ebs, or leave size_gib out"


@rule(
    why="An existing volume is used as it is: a size next to its id would mislead. It has no use without kind: ebs.",
    source="Slipway: stacks/storage.py",
    keys=("storage.home",),
)
def home_volume(s: Settings) -> Iterator[Finding]:
    home = s.storage.home
    if home.volume_id and home.kind == "head-node":
        yield (*HOME, "volume_id"), "only an EBS home has a volume", "set kind: ebs, or leave volume_id out"
    elif home.volume_id and home.size_gib is not None:
        yield (*HOME, "volume_id"), "an existing volume has its size already", "leave out size_gib"


@warning(
    why="The head node serves an EBS /home over NFS; with many nodes its network is the bottleneck.",
    source=f"{PCLUSTER}, SharedEbsPerformanceBottleNeckValidator",
    keys=("storage.home", *COUNT_KEYS),
)
def home_many_nodes(s: Settings) -> Iterator[Finding]:
    nodes = sum(queue.max_count for queue in s.queues)
    if s.storage.home.kind == "ebs" and nodes > MAX_NODES_ON_NFS:
        text = f"{nodes} nodes read /home through the head node's one network card"
        yield (*HOME, "kind"), text, "keep data on /fsx, or mount EFS or FSx for OpenZFS at /home"


@rule(
    why="A file system mounted there hides what the nodes run from.",
    source=f"{PCLUSTER}, SharedStorageMountDirValidator; Slipway: below /opt/slipway and other places that "
    "nodes run from",
    keys=MOUNT_KEYS,
)
def mount_reserved(s: Settings) -> Iterator[Finding]:
    for index, mount in enumerate(s.storage.mounts):
        below = any(f"{mount.path}/".startswith(f"{folder}/") for folder in NEEDED)
        if mount.path in RESERVED or below:
            yield (*MOUNTS, index, "path"), "is a place that the nodes need", "for example /shared"


@rule(
    why="If two file systems are mounted at one place, one is hidden. /fsx is Slipway's, /scratch is the "
    "local NVMe, /home is the EBS home.",
    source=f"{PCLUSTER}, DuplicateMountDirValidator and OverlappingMountDirValidator; slipway/cluster_config.py",
    keys=(*MOUNT_KEYS, "storage.home", "queues.instance_type"),
    across=True,
)
def mount_overlap(s: Settings) -> Iterator[Finding]:
    taken = [FSX_MOUNT]
    if s.storage.home.kind == "ebs":
        taken.append("/home")
    if any(queue.instance.nvme_gb for queue in s.queues):
        taken.append(EPHEMERAL)
    for index, mount in enumerate(s.storage.mounts):
        other = next((path for path in taken if _inside(mount.path, path)), None)
        if other is not None:
            yield (*MOUNTS, index, "path"), f"overlaps {other}, which is mounted already", "take a separate path"
        taken.append(mount.path)


@rule(
    why="ParallelCluster refuses an id that is there twice.",
    source=f"{PCLUSTER}, DuplicateNameValidator of shared storage ids",
    keys=(*MOUNT_KEYS, "storage.fsx.file_system_id"),
    across=True,
)
def mount_twice(s: Settings) -> Iterator[Finding]:
    seen = {s.storage.fsx.file_system_id: FSX_MOUNT}
    for index, mount in enumerate(s.storage.mounts):
        if mount.id in seen:
            yield (*MOUNTS, index, "id"), f"is mounted at {seen[mount.id]} already", "mount a file system once"
        seen.setdefault(mount.id, mount.path)


ID_FORMS = {"fsx-lustre": "fs-", "efs": "fs-", "fsx-openzfs": "fsvol-", "fsx-ontap": "fsvol-", "file-cache": "fc-"}
LONG_ID = 17  # hexadecimal digits


@rule(
    why="Lustre and EFS are mounted by file system, OpenZFS and ONTAP by volume, a cache by its own id.",
    source=f"{PCLUSTER}, schemas/cluster_schema.py and constants.py (FSX_VOLUME_ID_REGEX, FILE_CACHE_ID_REGEX)",
    keys=MOUNT_KEYS,
)
def mount_id(s: Settings) -> Iterator[Finding]:
    for index, mount in enumerate(s.storage.mounts):
        prefix = ID_FORMS[mount.kind]
        digits = len(mount.id.partition("-")[2])
        if not mount.id.startswith(prefix) or (mount.kind != "efs" and digits != LONG_ID):
            yield (*MOUNTS, index, "id"), f"is not an id of the kind {mount.kind}", f"for example {prefix}{'0' * 16}1"


@rule(
    why="A file cache drops what it has not exported; ParallelCluster refuses it as /home.",
    source=f"{PCLUSTER}, SharedFileCacheNotHomeValidator",
    keys=MOUNT_KEYS,
)
def mount_home_cache(s: Settings) -> Iterator[Finding]:
    for index, mount in enumerate(s.storage.mounts):
        if mount.kind == "file-cache" and mount.path == "/home":
            yield (*MOUNTS, index, "kind"), "a file cache cannot be /home", "take EFS or FSx, or another path"


@rule(
    why="ParallelCluster mounts at most 20 of EFS and 20 of FSx, /fsx among them.",
    source=f"{PCLUSTER}, NumberOfStorageValidator, MAX_EXISTING_STORAGE_COUNT",
    keys=MOUNT_KEYS,
)
def mount_count(s: Settings) -> Iterator[Finding]:
    efs = sum(mount.kind == "efs" for mount in s.storage.mounts)
    for count, most, kind in ((efs, MAX_EFS, "EFS"), (len(s.storage.mounts) - efs, MAX_FSX_MOUNTS, "FSx")):
        if count > most:
            yield MOUNTS, f"has {count} {kind} file systems; there can be {most}", "mount fewer"
