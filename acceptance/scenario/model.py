"""A scenario: what is measured on which cluster, and the limits that it is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

COLLECTIVES = (
    "all_gather",
    "all_reduce",
    "alltoall",
    "broadcast",
    "gather",
    "hypercube",
    "reduce",
    "reduce_scatter",
    "scatter",
    "sendrecv",
)

ROUND_OVERHEAD_S = 20  # seconds to start and end a round of the search


@dataclass(frozen=True)
class NetworkWanted:
    """What NCCL must report: the libfabric provider and the least number of network cards on a node."""

    provider: str
    nics: int | None = None


@dataclass(frozen=True)
class Test:
    """One nccl-tests sweep over all nodes. Sizes in bytes; timeout_s bounds the measurement itself, in seconds.

    step_bytes: the step where step_factor is 1, as nccl-tests' --stepbytes.
    missing_limit: what it means that nothing is known to hold it against: fail or warn; None: as the scenario says.
    """

    __test__ = False  # pytest takes classes of this name for its own
    name: str
    collective: str
    min_bytes: int
    max_bytes: int
    step_factor: int
    iterations: int
    warmup_iterations: int
    timeout_s: int
    missing_limit: str | None = None
    step_bytes: int = 0

    def sizes(self) -> list[int]:
        """The sizes that the sweep visits, as nccl-tests steps through them."""
        if self.step_factor == 1 and self.step_bytes > 0:
            return list(range(self.min_bytes, self.max_bytes + 1, self.step_bytes))
        sizes = [self.min_bytes]
        while self.step_factor > 1 and sizes[-1] * self.step_factor <= self.max_bytes:
            sizes.append(sizes[-1] * self.step_factor)
        return sizes


@dataclass(frozen=True)
class Limit:
    """A limit of the out-of-place bus bandwidth at one size, in GB/s.

    nodes_min..nodes_max: node counts it holds for. Below `fail_below` is a failure, below `warn_below` a warning.
    note: between which known ones it was interpolated, None if it was not. basis: what it rests on: `scenario`,
    `measured` (by others), `provisional` (one measurement of others, or a figure without an address), `derived` (from
    the rates of the instance type) or `baseline` (the good runs of this site).
    """

    collective: str
    nodes_min: int
    nodes_max: int
    size_bytes: int
    fail_below_gb_per_s: float
    warn_below_gb_per_s: float | None
    source: str
    date: str
    instance_type: str | None = None
    note: str | None = None
    basis: str = "scenario"

    @property
    def node_counts(self) -> str:
        """'4', or '4-8'."""
        return str(self.nodes_min) if self.nodes_min == self.nodes_max else f"{self.nodes_min}-{self.nodes_max}"

    def as_json(self) -> dict[str, Any]:
        """Return the object of report.json."""
        names = ("size_bytes", "fail_below_gb_per_s", "warn_below_gb_per_s", "source", "date", "note", "basis")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Baseline:
    """What `runs` good runs of this site reached, in GB/s of out-of-place bus bandwidth at one size.

    mad: median absolute deviation from the median. since, until: when the first and the last of them began (UTC).
    """

    collective: str
    nodes: int
    size_bytes: int
    median_gb_per_s: float
    mad_gb_per_s: float
    runs: int
    since: str
    until: str


@dataclass(frozen=True)
class Container:
    """Where nccl-tests run: an image for pyxis' --container-image, and what of the node is mounted (SOURCE:TARGET)."""

    image: str
    mounts: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileSystem:
    """What the shared file system sustains, in GB/s; None where that is not known. burst: while it has credits.

    client_gb_per_s: what one node is counted with. source: the settings behind the figures, in words.
    """

    mount: str
    write_gb_per_s: float | None
    read_gb_per_s: float | None
    burst_gb_per_s: float | None
    client_gb_per_s: float
    source: str


@dataclass(frozen=True)
class LocateSettings:
    """How the node to blame is looked for when the run over all nodes is slow or hangs.

    size_bytes: None takes the largest judged size. pair_timeout_s: seconds for one launch; a
    scenario may give `budget_s` instead, seconds for all rounds together. factor: a result below
    `factor` times the level of the healthy, and six MADs below it, is slow; 0.94 is six times the least MAD that
    counts, 1 %. pair_limit_gb_per_s: if it is set, it alone decides which pair is bad. collectives: what the pairs may
    run; empty: the failed test's, and alltoall where the scenario measures it. drain_percent: share of the nodes that
    were searched that `--drain` may drain, one node at least.
    """

    enabled: bool = True
    size_bytes: int | None = None
    iterations: int = 3
    warmup_iterations: int = 1
    pair_timeout_s: int = 120
    max_rounds: int = 6
    factor: float = 0.94
    pair_limit_gb_per_s: float | None = None
    collectives: tuple[str, ...] = ()
    drain_percent: int = 10


@dataclass(frozen=True)
class ScenarioFile:
    """A scenario of CloudAI, which `acceptance run` runs in place of the tests of acceptance.json.

    file, system: paths, absolute or from the folder of acceptance.json. timeout_s: bound of all its jobs together.
    """

    file: str
    system: str
    timeout_s: int


@dataclass(frozen=True)
class SuiteWanted:
    """The GPU suite and then the storage test on all nodes, after the tests of the network.

    timeout_s, storage_timeout_s: bounds of the two jobs. image_wait_s: how long an image that is being imported is
    waited for. storage_directory: a folder for the test is made in it. programs: the suite, on each node.
    """

    timeout_s: int
    storage_timeout_s: int
    image_wait_s: int = 0
    quick: bool = True
    storage_directory: str = "/fsx"
    programs: str = "/opt/slipway/current/gpusuite"


@dataclass(frozen=True)
class Scenario:
    """A whole scenario file (schema 1).

    gpu_image: the file of an image; the first test's job asks each node in it for its GPUs.
    """

    cluster: str
    partition: str
    instance_type: str
    nodes: int
    gpus_per_node: int
    network: NetworkWanted | None
    tests: tuple[Test, ...]
    limits: tuple[Limit, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    locate: LocateSettings = field(default_factory=LocateSettings)
    mpi: str = "pmix"
    container: Container | None = None
    gpu_image: str | None = None
    file_system: FileSystem | None = None
    environment: tuple[tuple[str, str], ...] = ()
    nccl_tests_paths: tuple[str, ...] = ()
    queue_timeout_s: int = 600
    node_wait_s: int = 30
    missing_limit: str = "fail"
    test_scenario: ScenarioFile | None = None
    suite: SuiteWanted | None = None
