"""One image: ask the registry for it, import it under a temporary name, check it, rename it."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from headnode.containers import credentials as keys
from headnode.containers import places, registry, tools
from headnode.containers.credentials import Credential
from headnode.containers.images import Image
from headnode.containers.registry import Manifest, RegistryError
from headnode.containers.tools import Limits, ToolFault

TRIES = 3
UNPACKED = 3  # bytes on disk, unpacked, for one compressed byte: an estimate of ours that only a warning rests on
# What commands print -> what it means. The first match is the message for the user.
MEANINGS = (
    # GNU parallel, which enroot unpacks with, keeps what its jobs print on the same disk: where that is full, only
    # parallel's own words arrive.
    (
        ("no space left", "failed to write to output", "is the disk full?", "cannot append to buffer file"),
        "the disk is full",
    ),
    (("checksum mismatch", "unexpected end of file", "curl: (18)", "pigz: skipping"), "a layer arrived damaged"),
    (
        ("curl: (6)", "curl: (7)", "curl: (28)", "curl: (35)", "curl: (52)", "curl: (56)", "curl: (92)"),
        "the registry could not be reached",
    ),
    (("returned error code: 401", "returned error code: 403"), "the registry refused the key"),
    # curl's words for a layer (`--fail`). The next try gets a new token, and goes on with the layers that are here.
    (
        ("returned error: 401", "returned error: 403"),
        "the registry refused a layer: the token ran out meanwhile, or the key may not pull all of this image",
    ),
    # enroot issues 30, 69 and 141: its package `enroot+caps` gives the helper programs their capabilities.
    (("failed to set capabilities",), "enroot's programs lack their capabilities: install the package enroot+caps"),
)
FULL = MEANINGS[0][1]
# enroot's word for an image without an index (3.4 to 4.1, src/docker.sh); it imports it all the same.
_OTHER_MACHINE = re.compile(r"Image architecture doesn't match the requested one: (\S+) != (\S+)")
# A word of the line that says why a command failed: the last lines often say only that it did, or how far it got.
_WHY = re.compile(r"\b(error|cannot|failed|fatal|denied|refused|not)\b", re.IGNORECASE)


@dataclass
class Job:
    """One file to make, and how far it is. `state`: waiting, importing, ready or failed.

    `refusal`: why the registry gave no manifest; `wanted`: its layers are to be fetched, of which `here_before`
    bytes were here when the run began; `logged`: this run has begun the image's log.
    """

    image: Image
    suffix: str
    state: str = "waiting"
    detail: str = ""
    hint: str = ""
    manifest: Manifest | None = None
    refusal: str = ""
    wanted: bool = False
    here_before: int = 0
    logged: bool = False

    @property
    def name(self) -> str:
        """The file's name below containers/."""
        return f"{self.image.stem}.{self.suffix}"

    def settle(self, state: str, detail: str, hint: str = "") -> None:
        """Note how it ended."""
        self.state, self.detail, self.hint = state, detail, hint


class Failed(Exception):
    """An import that did not come about: one line for the user."""


@dataclass
class Importer:
    """Makes image files below `containers`, with logs below `logs`; many threads may use it at a time."""

    containers: Path
    logs: Path
    shop: places.Workshop
    credentials: Mapping[str, Credential]
    limits: Limits
    refresh: bool
    stopped: threading.Event = field(default_factory=threading.Event)
    _reserved: dict[str, int] = field(default_factory=dict)
    _space: threading.Condition = field(default_factory=threading.Condition)

    def lock_file(self, job: Job) -> Path:
        """The lock that is held while this image is imported."""
        return self.containers / f".{job.name}.lock"

    def run_if_free(self, job: Job) -> bool:
        """Import the image if it is missing; return false when another run imports it. The job holds the result."""
        # One lock for each image, over all runs on all nodes.
        lock = places.Lock(self.lock_file(job))
        try:
            if not lock.acquire():
                return False
            self._run(job)
        except (Failed, OSError) as error:
            job.settle("failed", f"{error}", self._tell(job, f"{error}"))
        finally:
            lock.release()
        return True

    def _run(self, job: Job) -> None:
        if tools.missing(job.suffix):
            raise Failed(f"{tools.missing(job.suffix)} is not installed on this node")
        if self._there(job):
            return
        if job.manifest is None:
            raise Failed(job.refusal)
        refusal = too_old(job, tools.enroot_version()) if job.suffix == "sqsh" else ""
        if refusal:
            raise Failed(refusal)
        job.state = "importing"
        self._with_space(job, job.manifest)

    # ------------------------------------------------------------------------------------------------ is it there?

    def survey(self, job: Job) -> None:
        """Ask the registry what the image is now: all images before the first import, so that refusals show at once."""
        if tools.missing(job.suffix):
            return
        known = self._known(job)
        try:
            job.manifest = registry.manifest(job.image, self.credentials, known or "")
        except RegistryError as error:
            job.refusal = str(error)
            return
        job.wanted = known is None or (self.refresh and known != job.manifest.digest)
        job.here_before = self.shop.fetched(job.manifest.layers)

    def _known(self, job: Job) -> str | None:
        """Return the digest of the existing file; empty when it was not noted, None when there is no file."""
        target = self.containers / job.name
        return places.read_info(target, self._info(job)).get("digest", "") if target.is_file() else None

    def _there(self, job: Job) -> bool:
        """Return whether the file exists and stays. Reports the registry's image now, and the owner."""
        known = self._known(job)
        if known is None:
            return False
        now = job.manifest.digest if job.manifest else ""
        whose = places.owner(self.containers / job.name)
        there = "is there already" + (f" (made by the user {whose})" if whose else "")
        if not now:
            job.settle("ready", f"{there}; not compared: {job.refusal}")
        elif known == now:
            job.settle("ready", f"{there}, unchanged ({_short(known)})")
        elif not known:
            job.settle("ready", f"{there}; its digest was not noted: --refresh imports it anew")
        else:
            text = f"{there}; the registry has another image under this tag now ({_short(known)} here, "
            job.settle("ready", f"{text}{_short(now)} there): --refresh imports it")
        return not self.refresh or not now or known == now

    # ------------------------------------------------------------------------------------------------------- space

    def _with_space(self, job: Job, manifest: Manifest) -> None:
        """Wait until the disks have room next to the running imports, then import."""
        need = manifest.size * (1 + UNPACKED)
        self._refuse_if_too_small(manifest.size - self.shop.fetched(manifest.layers), manifest.size)
        with self._space:
            while self._reserved and need + sum(self._reserved.values()) > places.free_bytes(self.shop.root):
                self._space.wait(1.0)
            self._reserved[job.name] = need
        try:
            self._with_slot(job, manifest, need)
        finally:
            with self._space:
                del self._reserved[job.name]
                self._space.notify_all()

    def _refuse_if_too_small(self, to_fetch: int, size: int) -> None:
        """Layers are kept compressed while they are unpacked, and an image is hardly smaller than its layers."""
        for place, need in ((self.shop.root, to_fetch), (self.containers, size // 2)):
            free = places.free_bytes(place)
            if free < need:
                has, wants = places.amount(free), places.amount(need)
                raise Failed(f"the disk of {place} is too small: {has} are free, {wants} at least are needed")

    def _with_slot(self, job: Job, manifest: Manifest, need: int) -> None:
        """Hold one of the node's slots: two runs together import no more at a time than one."""
        slots = self.shop.slots(self.limits.at_once)
        while True:
            for slot in slots:
                if slot.acquire():
                    try:
                        return self._import(job, manifest, need)
                    finally:
                        slot.release()
            if self.stopped.wait(0.3):
                raise Failed("stopped")

    # ------------------------------------------------------------------------------------------------------ import

    def _import(self, job: Job, manifest: Manifest, need: int) -> None:
        self._clear(job)
        partial = self.containers / f".{job.name}.partial.{os.getpid()}"
        partial.mkdir(mode=0o700)
        try:
            with self._open_log(job) as log:
                if places.free_bytes(self.shop.root) < need:
                    log.write(
                        f"about {places.amount(need)} of local disk are wanted: this may not be enough\n".encode()
                    )
                    log.flush()
                self._try(job, partial / job.name, log.fileno())
            self._put(job, manifest, partial / job.name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _clear(self, job: Job) -> None:
        """Remove what killed runs left of this image. The lock is held, so no other run works on it."""
        for left in self.containers.glob(f".{job.name}.partial.*"):
            shutil.rmtree(left, ignore_errors=True)

    def _try(self, job: Job, output: Path, log: int) -> None:
        for left in reversed(range(TRIES)):
            start = os.lseek(log, 0, os.SEEK_END)
            # Each try has its own directory: what an ended one unpacked would take the room of the next.
            with self.shop.temporary(job.name) as temporary:
                fault = self._once(job, output, self._environment(job, temporary), log)
            self.shop.forget_tokens()
            said = os.pread(log, 1 << 16, start).decode(errors="replace")
            other = _OTHER_MACHINE.search(said)
            if not fault and not other:
                return
            with contextlib.suppress(FileNotFoundError):
                output.unlink()
            if other:
                asked = f"{job.image.line} is for {other[1]}, and this node is {other[2]}"
                raise Failed(f"{asked}: name a tag or digest for {other[2]} in the list")
            reason = explain(said, fault.text if fault else "")
            if reason == FULL:
                reason = f"{reason}: that of {self.shop.root} or that of {self.containers}, see 'df -h'"
            elif left and fault and not fault.final:
                os.write(log, f"slipway: {reason}; next try\n".encode())
                pause = self.limits.pause_s * 2 ** (TRIES - 1 - left) * random.uniform(1.0, 1.5)  # noqa: S311
                self.stopped.wait(pause)
                continue
            raise Failed(reason)

    def _environment(self, job: Job, temporary: Path) -> dict[str, str]:
        """The commands' environment; of the keys that of this image's registry alone."""
        own = keys.of_registry(job.image.registry, self.credentials)
        config = temporary / "config"
        config.mkdir(mode=0o700)
        keys.write_file(own, config / ".credentials")
        others = {one.variable for one in self.credentials.values()} - {one.variable for one in own.values()}
        env = tools.environment(self.shop, temporary, next(iter(own.values()), None), self.limits)
        return {name: value for name, value in env.items() if name not in others}

    def _once(self, job: Job, output: Path, env: Mapping[str, str], log: int) -> _Fault | None:
        """One try; None when the file is whole."""
        try:
            code = tools.run(tools.command(job.suffix, job.image, output), env, log, self.limits, self.stopped.is_set)
            if code:
                return _Fault("", final=False)
            if not self._whole(job, output, env, log):
                return _Fault("what was imported is no whole image", final=False)
        except ToolFault as fault:
            return _Fault(str(fault), final=fault.final)
        return None

    def _whole(self, job: Job, output: Path, env: Mapping[str, str], log: int) -> bool:
        """Return whether a new file has all that belongs to it."""
        if job.suffix == "sqsh":
            return tools.whole(output)
        return tools.run(["apptainer", "sif", "list", str(output)], env, log, self.limits, self.stopped.is_set) == 0

    def _put(self, job: Job, manifest: Manifest, output: Path) -> None:
        """Note the digest, then rename: a killed run leaves the old image or the new one, each whole."""
        output.chmod(0o644)
        facts = {"image": job.image.line, "digest": self._still(job, manifest)}
        facts["imported"] = str(int(time.time()))
        noted = ""
        try:
            places.write_info(output, self._info(job), facts)
        except PermissionError:
            # In the sticky directory another user's note of an image that was removed cannot be replaced.
            noted = f"; its digest is not noted: {self._info(job)} is another user's"
        output.replace(self.containers / job.name)
        job.settle("ready", f"imported ({_short(manifest.digest)}){noted}")

    def _still(self, job: Job, manifest: Manifest) -> str:
        """Return the digest, or nothing when the tag moved meanwhile: then it is unknown which of both was imported."""
        with contextlib.suppress(RegistryError):
            return manifest.digest if registry.digest(job.image, self.credentials) == manifest.digest else ""
        return manifest.digest

    # -------------------------------------------------------------------------------------------------- file names

    def _info(self, job: Job) -> Path:
        return self.containers / f".{job.name}.info"

    def _log(self, job: Job) -> str:
        """The log of this image; another user's is left alone."""
        file = self.logs / f"{job.name}.log"
        with contextlib.suppress(OSError):
            if file.lstat().st_uid != os.getuid():
                return str(file.with_suffix(f".{os.getuid()}.log"))
        return str(file)

    def _open_log(self, job: Job) -> FileIO:
        descriptor = places.create(Path(self._log(job)), os.O_RDWR)
        job.logged = True
        return os.fdopen(descriptor, "w+b", buffering=0)

    def _tell(self, job: Job, reason: str) -> str:
        """End the image's log with why it failed (what was refused has none yet); its path, or nothing without one."""
        log = Path(self._log(job))
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(log, flags) if job.logged else places.create(log), "ab") as file:
                file.write(f"slipway: {reason}\n".encode())
        return str(log) if log.is_file() else ""


@dataclass(frozen=True)
class _Fault:
    """Why one try failed. `text` is empty when the command's output says it."""

    text: str
    final: bool


def too_old(job: Job, version: tuple[int, int]) -> str:
    """Return why this node's enroot cannot import an image at all; empty where nothing says so."""
    has = f"enroot {version[0]}.{version[1]}"
    # Body and header of ECR's answer get into one pipe (NVIDIA/enroot issues 143 and 166; right since 3.5.0).
    if version < (3, 5) and keys.is_ecr(job.image.registry):
        return f"{has} cannot log in to ECR: install 3.5 or newer"
    if version < (4, 0) and job.manifest and job.manifest.zstd:
        return (
            f"the image has layers in zstd, which {has} cannot read: install 4.0 or newer, or make a copy with "
            "`skopeo copy --dest-compress-format gzip --dest-force-compress-format`"
        )
    return ""


def explain(said: str, ours: str) -> str:
    """Turn what a command printed into one line for the user."""
    low = said.lower()
    for words, meaning in MEANINGS:
        if any(word in low for word in words):
            return meaning
    if ours:
        return ours
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith(("[INFO]", "[WARN]"))]
    # enroot 4 prints nothing at all when a registry with Basic logins refuses the key.
    fallback = lines[-1] if lines else "it failed without a message: is the key right and allowed to pull this image?"
    return next(filter(_WHY.search, lines), fallback)[:300]


def _short(digest: str) -> str:
    return digest[:19] or "no digest"
