"""The images on the shared file system: imported from a real registry, whatever the registry, the disk or a kill does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from bench.bootstrap.images import most_at_once
from tests.registry import images

from .host import Host
from .registry import ECR, KEY, Registry, furnish

pytestmark = pytest.mark.hosts
DOWNLOAD = "/fsx/scripts/download-ngc-containers.sh --progress 0.5 --pause 0.1"
PYTORCH = "nvcr.io_nvidia_pytorch-24.01-py3"
JAX = "nvcr.io_nvidia_jax-24.01-py3"
TOKENS = "find /var/tmp/slipway-containers-0 /dev/shm /fsx -path '*tokens*' -type f"
KEYED = f"export NGC_API_KEY={KEY};"


@pytest.fixture(scope="module")
def registry(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Registry:
    if images.missing():
        pytest.skip(f"needs {', '.join(images.missing())}")
    furnish(host, tmp_path_factory.mktemp("registry"))
    return Registry(host)


@pytest.fixture
def head(registry: Registry) -> Iterator[Host]:
    """The host without images, layers, logs and faults."""
    registry.faults()
    registry.forget()
    clean = "rm -rf /fsx/containers/*.sqsh /fsx/containers/*.sif /fsx/containers/.nvcr* /fsx/logs/container-downloads/* /fsx/logs/container-downloads/.s* "
    clean += (
        "/fsx/logs/ngc-download.log /var/tmp/slipway-containers-* /srv/secret /etc/slipway/site.env /srv/enroot.log"
    )
    registry.host.run(clean)
    return registry.host  # type: ignore[return-value]


def wanted(host: Host, *lines: str) -> str:
    """Write a list; the command that imports it."""
    host.put("/srv/list", "".join(f"{line}\n" for line in lines).encode())
    return f"{DOWNLOAD} /srv/list"


def info(host: Host, name: str) -> dict[str, str]:
    text = host.run(f"cat /fsx/containers/.{name}.info").stdout
    return dict(line.split("=", 1) for line in text.splitlines())


# ------------------------------------------------------------------------------------------------------- the good case


def test_list_of_the_guide_in_both_forms_is_imported_once(head: Host, registry: Registry) -> None:
    run = wanted(
        head,
        "# for training",
        "docker://nvcr.io#nvidia/pytorch:24.01-py3",
        "",
        "docker://nvcr.io/nvidia/jax:24.01-py3  # JAX",
    )
    out = head.run(KEYED + run).stdout
    assert f"{PYTORCH}.sqsh imported (sha256:" in out
    assert "2 of 2 images are there" in out
    files = head.run(f"unsquashfs -l /fsx/containers/{PYTORCH}.sqsh").stdout.split()
    assert {"squashfs-root/opt/old/new", "squashfs-root/data", "squashfs-root/etc/os-release"} <= set(files)
    # What upper layers took away is gone; the image's devices were never made.
    assert not {"squashfs-root/opt/gone", "squashfs-root/opt/old/x", "squashfs-root/dev/bad"} & set(files)
    table = head.run("cat /fsx/logs/container-downloads/status.tsv").stdout
    assert f"{PYTORCH}.sqsh\tready\tdocker://nvcr.io#nvidia/pytorch:24.01-py3\t20" in table
    digest = head.run(
        f"curl -sI -u '$oauthtoken:{KEY}' -H 'Accept: application/vnd.docker.distribution.manifest.v2+json' "
        "http://127.0.0.1:5000/v2/nvidia/pytorch/manifests/24.01-py3 | sed -n 's/^Docker-Content-Digest: //p' | tr -d '\\r\\n'"
    ).stdout
    assert info(head, f"{PYTORCH}.sqsh")["digest"] == digest
    listing = head.run("/fsx/containers/list-containers.sh").stdout
    assert re.search(
        rf"^ready +[0-9.]+K  {digest[7:19]} +0min  /fsx/containers/{PYTORCH}\.sqsh$", listing, re.MULTILINE
    )
    assert listing.endswith("2 images in /fsx/containers\n")
    state = json.loads(head.run("cat /var/lib/slipway/background/containers.json").stdout)
    assert (state["state"], state["detail"], state["percent"]) == ("done", "2 of 2 images are there", 100)
    assert "imported" in head.run("cat /fsx/logs/ngc-download.log").stdout
    # Into a user's folder, as `acceptance install` asks for: from the same layers, next to no state of the cluster.
    registry.forget()
    head.run(f"mkdir -p /fsx/own; {KEYED} {run.replace(DOWNLOAD, f'{DOWNLOAD} --into /fsx/own')}")
    assert head.run("ls -A /fsx/own | grep -v lock").stdout.split() == [
        f".{JAX}.sqsh.info",
        f".{PYTORCH}.sqsh.info",
        f"{JAX}.sqsh",
        f"{PYTORCH}.sqsh",
    ]
    assert registry.layers_fetched() == []
    # Again: the registry is asked what the tags are, and nothing is fetched.
    registry.forget()
    again = head.run(KEYED + run).stdout
    assert again.count("is there already, unchanged (sha256:") == 2
    assert registry.layers_fetched() == []


def test_images_in_ocis_form_and_with_layers_in_zstd_are_imported_compressed(head: Host) -> None:
    run = wanted(head, "docker://nvcr.io#nvidia/oci:1", "docker://nvcr.io#nvidia/zstd:1")
    assert "2 of 2 images are there" in head.run(f"{KEYED} {run} --compressed").stdout
    listed = "cd /fsx/containers; for i in oci zstd; do unsquashfs -s nvcr.io_nvidia_$i-1.sqsh; unsquashfs -l nvcr.io_nvidia_$i-1.sqsh; done"
    out = head.run(listed).stdout
    assert out.count("Compression zstd") == 2
    assert {"squashfs-root/etc/os-release", "squashfs-root/opt/zstd"} <= set(out.split())


def test_step_queues_the_list_and_systemd_imports_it(head: Host, registry: Registry) -> None:
    head.run(
        "echo docker://nvcr.io#public/small:1 >/fsx/config/containers.txt; rm -f /var/lib/slipway/background/containers.json"
    )
    head.run("/opt/slipway/current/headnode/steps/50-containers.sh")
    registry.wait('grep -q \'"state": "done"\' /var/lib/slipway/background/containers.json')
    assert head.run("ls /fsx/containers/*.sqsh").stdout == "/fsx/containers/nvcr.io_public_small-1.sqsh\n"
    told = [
        line.split(" ", 1)[1].split(";")[0]
        for line in head.run("cat /var/log/slipway/setup.log").stdout.splitlines()[-3:]
    ]
    assert told == [
        "slipway: background containers waiting: queued",
        "slipway: background containers running: 0 of 1 images are there",
        "slipway: background containers done: 1 of 1 images are there",
    ]
    head.run("cp /opt/slipway/current/containers.txt /fsx/config/containers.txt; systemctl disable slipway-containers")


def test_listing_says_how_old_an_image_is(head: Host) -> None:
    head.run(
        "cd /fsx/containers; touch -d '50 hours ago' a.sqsh; touch -d '3 hours ago' b.sqsh; touch -d '4 minutes ago' c.sif"
    )
    listing = head.run("/fsx/containers/list-containers.sh; cd /fsx/containers; rm a.sqsh b.sqsh c.sif").stdout
    assert [line.split()[2:] for line in listing.splitlines()[:3]] == [
        ["2d", "/fsx/containers/a.sqsh"],
        ["3h", "/fsx/containers/b.sqsh"],
        ["4min", "/fsx/containers/c.sif"],
    ]


def test_layer_that_two_images_share_is_fetched_once(head: Host, registry: Registry) -> None:
    run = wanted(head, "docker://nvcr.io#nvidia/moved:1", "docker://nvcr.io#nvidia/moved:2")
    setting = "sed -i 's/^CONTAINERS_AT_ONCE=.*/CONTAINERS_AT_ONCE={}/' /etc/slipway/node.env"
    out = head.run(f"{setting.format(1)}; {KEYED} {run}; {setting.format('')}").stdout
    assert "2 images in /srv/list, 1 at a time" in out
    fetched = registry.layers_fetched()
    assert len(fetched) == len(set(fetched)) == 4  # two configurations, two layers


def test_bad_lines_and_repeated_ones_are_left_out_and_nothing_of_them_is_run(head: Host) -> None:
    run = wanted(
        head,
        "$(touch /srv/canary)",
        "docker://x;id",
        "docker://nvcr.io#public/small:1\r",
        "docker://nvcr.io/public/small:1",
    )
    out = head.run(run).stdout
    for number in (1, 2):
        assert f"/srv/list:{number}: " in out
    assert "/srv/list:4: 'docker://nvcr.io/public/small:1': is there already in another line; left out" in out
    assert "1 of 1 images are there" in out
    assert head.run("test -e /srv/canary", check=False).returncode == 1


def test_list_that_is_not_there(head: Host) -> None:
    done = head.run(f"{DOWNLOAD} /srv/nowhere", check=False)
    assert done.returncode == 1
    assert "/srv/nowhere cannot be read" in done.stdout


def test_unknown_option_is_refused(head: Host) -> None:
    assert head.run(f"{DOWNLOAD} --frsh", check=False).returncode == 2


def test_modules_of_the_current_directory_are_not_taken(head: Host) -> None:
    """All users may write there, and root may be there."""
    head.run("mkdir -p /fsx/containers/headnode && touch /fsx/containers/headnode/__init__.py")
    head.run(
        "for name in argparse json headnode/containers; do echo 'raise SystemExit(77)' >/fsx/containers/$name.py; done"
    )
    out = head.run(f"cd /fsx/containers && {KEYED} {wanted(head, 'docker://nvcr.io#public/small:1')}").stdout
    head.run("rm -r /fsx/containers/{argparse,json}.py /fsx/containers/headnode")
    assert "1 of 1 images are there" in out


def test_user_without_root_imports_beside_roots_images(head: Host) -> None:
    head.run(KEYED + wanted(head, "docker://nvcr.io#nvidia/jax:24.01-py3"))
    run = wanted(head, "docker://nvcr.io#public/small:1", "docker://nvcr.io#nvidia/jax:24.01-py3")
    out = head.run(f"{KEYED} setpriv --reuid=nobody --regid=nogroup --clear-groups {run}").stdout
    assert "2 of 2 images are there" in out
    assert head.run("stat -c %U /fsx/containers/nvcr.io_public_small-1.sqsh").stdout == "nobody\n"


def test_what_a_user_without_root_was_told_is_in_a_log_and_in_the_listing(head: Host) -> None:
    user = "setpriv --reuid=nobody --regid=nogroup --clear-groups"
    run = wanted(head, "docker://nvcr.io#nvidia/jax:24.01-py3", "docker://nvcr.io#nvidia/jax:24.99")
    head.run(f"export NGC_API_KEY=nvapi-wrong; {run}", check=False)
    assert "refused the key (HTTP 401)" in head.run("/fsx/containers/list-containers.sh").stdout
    done = head.run(f"{KEYED} {user} {run}", check=False)
    assert (done.returncode, "1 of 2 images are there" in done.stdout) == (1, True)
    number = head.run("id -u nobody").stdout.strip()
    assert "1 of 2 images are there" in head.run(f"cat /fsx/logs/container-downloads/ngc-download.{number}.log").stdout
    # The newest entry of each image counts, of any user: root's refusals are older.
    listing = head.run(f"/fsx/containers/list-containers.sh; {user} /fsx/containers/list-containers.sh").stdout
    assert listing.count("failed ") == 2
    assert listing.count("has no nvidia/jax:24.99 (HTTP 404)") == 2
    assert listing.count("ready ") == 2
    # Then root's word is the newest.
    head.run(f"{user} sed -i s/20..-..-..T/2020-01-01T/ /fsx/logs/container-downloads/status.{number}.tsv")
    head.run(f"export NGC_API_KEY=nvapi-wrong; {wanted(head, 'docker://nvcr.io#nvidia/jax:24.99')}", check=False)
    listing = head.run("/fsx/containers/list-containers.sh").stdout
    assert "refused the key (HTTP 401)" in listing
    assert "HTTP 404" not in listing
    # What others put in place of a user's table or log is not followed.
    place = "/fsx/logs/container-downloads"
    head.run(
        f"rm {place}/*.{number}.*; echo mine >/srv/mine; chmod 666 /srv/mine; ln -s /srv/mine {place}/ngc-download.{number}.log"
    )
    head.run(
        f"ln -s /srv/mine {place}/status.{number}.tsv; {KEYED} {user} {wanted(head, 'docker://nvcr.io#public/small:1')}"
    )
    assert head.run("cat /srv/mine; /fsx/containers/list-containers.sh >/dev/null").stdout == "mine\n"


# ------------------------------------------------------------------------------------------------------------- the keys


def test_key_comes_from_the_secret_and_is_in_no_file_and_no_argument(head: Host) -> None:
    head.put("/srv/secret", f"{KEY}\n".encode())
    head.run("echo NGC_SECRET_ARN=arn:aws:secretsmanager:x >>/etc/slipway/node.env")
    head.run(wanted(head, "docker://nvcr.io#nvidia/jax:24.01-py3"))
    head.run("sed -i '$d' /etc/slipway/node.env")
    arguments = head.run("cat /srv/arguments").stdout
    assert "/v2/nvidia/jax/blobs" in arguments
    assert head.run(f"grep -rl {KEY} /fsx /var/tmp /srv/arguments /var/lib/slipway", check=False).stdout == ""
    assert head.run("find /var/tmp /fsx -name .credentials").stdout == ""


def test_image_of_ecr_comes_with_the_password_of_the_day(head: Host) -> None:
    run = wanted(head, f"docker://{ECR}/train:1.0")
    old = head.run(f"export ENROOT_REHEARSAL_VERSION=3.4.1; {run}", check=False)
    assert old.returncode == 1
    assert f"{ECR}_train-1.0.sqsh enroot 3.4 cannot log in to ECR: install 3.5 or newer" in old.stdout
    assert f"{ECR}_train-1.0.sqsh imported" in head.run(run).stdout
    assert "ecr-password-1" not in head.run("cat /srv/arguments").stdout
    head.run(f"rm -f /fsx/containers/{ECR}* /fsx/containers/.{ECR}*")


def test_secret_that_cannot_be_read_or_is_no_key_is_said_without_showing_it(head: Host) -> None:
    secret = "echo NGC_SECRET_ARN=arn:x >>/etc/slipway/node.env;"
    run = wanted(head, "docker://nvcr.io#public/small:1")
    assert "does this node's policy allow it? aws says: AccessDeniedException" in head.run(secret + run).stdout
    head.put("/srv/secret", b"$(id) two words\n")
    out = head.run(f"{run}; sed -i '/^NGC_SECRET_ARN=arn:x/d' /etc/slipway/node.env").stdout
    assert "holds no key: one word of letters" in out
    assert "two words" not in out


@pytest.mark.parametrize(
    ("before", "faults", "line", "said"),
    [
        ("export NGC_API_KEY=nvapi-wrong;", {}, "nvidia/jax:24.01-py3", "refused the key (HTTP 401): is it right"),
        (KEYED, {"status": 403}, "nvidia/jax:24.01-py3", "refused the key (HTTP 403): is it right"),
        ("", {}, "nvidia/jax:24.01-py3", "wants a key (HTTP 401), and no key is set for it: see ngc_secret_arn"),
        (KEYED, {}, "nvidia/jax:24.99", "has no nvidia/jax:24.99 (HTTP 404): are name and tag right?"),
        (
            f"{KEYED} export ENROOT_REHEARSAL_VERSION=3.5.0;",
            {},
            "nvidia/zstd:1",
            "the image has layers in zstd, which enroot 3.5 cannot",
        ),
    ],
)
def test_what_a_registry_refuses_is_said_and_the_other_images_come(
    head: Host, registry: Registry, before: str, faults: dict[str, int], line: str, said: str
) -> None:
    other = "docker://nvcr.io#public/small:1"
    if faults:  # they would keep the other one away too: it is there before
        head.run(KEYED + wanted(head, other))
        registry.faults(**faults)
    run = wanted(head, f"docker://nvcr.io#{line}", other)
    done = head.run(before + run, check=False)
    assert done.returncode == 1
    assert said in done.stdout
    assert "1 of 2 images are there" in done.stdout
    assert said[:60] in head.run("/fsx/containers/list-containers.sh").stdout
    log = re.search(r"\(log: (/fsx/logs/container-downloads/\S+\.log)\)", done.stdout)
    assert log is not None
    assert said in head.run(f"cat {log[1]}").stdout
    state = json.loads(head.run("cat /var/lib/slipway/background/containers.json").stdout)
    assert state["state"] == "failed"
    assert said[:60] in state["detail"]
    assert state["hint"] == "repair, then: sudo bash /fsx/scripts/download-ngc-containers.sh /srv/list"


# ------------------------------------------------------------------------------------------------------------ the tags


def test_tag_that_moved_is_told_and_imported_with_refresh_only(head: Host, registry: Registry) -> None:
    run = wanted(head, "docker://nvcr.io#nvidia/moved:1")
    head.run(KEYED + run)
    before = info(head, "nvcr.io_nvidia_moved-1.sqsh")["digest"]
    link = registry.host.run(
        "cat /srv/storage/docker/registry/v2/repositories/nvidia/moved/_manifests/tags/1/current/link"
    ).stdout
    registry.retag("nvidia/moved", "1", "2")
    told = head.run(KEYED + run).stdout
    assert f"the registry has another image under this tag now ({before[:19]} here, sha256:" in told
    assert info(head, "nvcr.io_nvidia_moved-1.sqsh")["digest"] == before
    head.run(f"{KEYED} {run} --refresh")
    assert info(head, "nvcr.io_nvidia_moved-1.sqsh")["digest"] != before
    assert "opt/old/new" in head.run("unsquashfs -l /fsx/containers/nvcr.io_nvidia_moved-1.sqsh").stdout
    registry.forget()
    assert "unchanged" in head.run(f"{KEYED} {run} --refresh").stdout
    assert registry.layers_fetched() == []
    head.run(
        f"printf %s '{link}' >/srv/storage/docker/registry/v2/repositories/nvidia/moved/_manifests/tags/1/current/link"
    )


def test_tag_that_moves_during_the_import_leaves_no_digest_that_may_be_wrong(head: Host, registry: Registry) -> None:
    registry.faults(rate=10_000)
    run = KEYED + wanted(head, "docker://nvcr.io#nvidia/moved:1")
    head.put("/srv/run", run.encode())
    head.run("systemd-run --quiet --collect --unit=moving bash /srv/run")
    registry.wait("grep -q 'blobs.*curl' /srv/requests")
    tags = "/srv/storage/docker/registry/v2/repositories/nvidia/moved/_manifests/tags"
    head.run(f"cp {tags}/1/current/link /srv/link")
    registry.retag("nvidia/moved", "1", "2")
    registry.wait("! systemctl is-active --quiet moving")
    head.run(f"cp /srv/link {tags}/1/current/link")
    assert info(head, "nvcr.io_nvidia_moved-1.sqsh")["digest"] == ""


def test_image_put_there_by_hand_or_without_a_registry_stays(head: Host) -> None:
    head.run("echo by hand >/fsx/containers/nvcr.io_public_small-1.sqsh")
    run = wanted(head, "docker://nvcr.io#public/small:1", "docker://nvcr.io#nvidia/jax:24.01-py3")
    head.run(f"cp /fsx/containers/nvcr.io_public_small-1.sqsh /fsx/containers/{JAX}.sqsh")
    out = head.run(run).stdout
    assert "its digest was not noted: --refresh imports it anew" in out
    assert f"{JAX}.sqsh is there already; not compared: the registry nvcr.io wants a key" in out
    assert head.run(f"cat /fsx/containers/{JAX}.sqsh").stdout == "by hand\n"


def test_image_named_by_its_digest(head: Host) -> None:
    head.run(KEYED + wanted(head, "docker://nvcr.io#public/small:1"))
    digest = info(head, "nvcr.io_public_small-1.sqsh")["digest"]
    out = head.run(KEYED + wanted(head, f"docker://nvcr.io#public/small@{digest}")).stdout
    assert f"nvcr.io_public_small-{digest.replace(':', '-')}.sqsh imported ({digest[:19]})" in out


# ---------------------------------------------------------------------------------------------- the way, and the disks


def test_layer_that_arrives_in_half_is_fetched_again(head: Host, registry: Registry) -> None:
    registry.faults(truncate=4)  # GNU parallel tries both of its blobs twice
    assert "imported" in head.run(wanted(head, "docker://nvcr.io#public/small:1")).stdout
    log = head.run("cat /fsx/logs/container-downloads/nvcr.io_public_small-1.sqsh.log").stdout
    assert "slipway: a layer arrived damaged; next try" in log


def test_layer_that_never_arrives_whole(head: Host, registry: Registry) -> None:
    registry.faults(truncate=1000)
    done = head.run(wanted(head, "docker://nvcr.io#public/small:1"), check=False)
    assert done.returncode == 1
    assert "nvcr.io_public_small-1.sqsh a layer arrived damaged (log: /fsx/logs/container-downloads/" in done.stdout
    assert head.run("ls -A /fsx/containers | grep -E 'sqsh$|partial'", check=False).stdout == ""
    assert head.run("ls /var/tmp/slipway-containers-0/tmp").stdout == ""


def test_registry_that_stands_still_is_given_up_in_bounded_time(head: Host, registry: Registry) -> None:
    registry.faults(stall=True)
    run = wanted(head, "docker://nvcr.io#nvidia/jax:24.01-py3")
    done = head.run(f"{KEYED} {run} --stall 1", check=False)
    assert done.returncode == 1
    assert "no data moved for 1 s: the registry or the network path to it is stuck" in done.stdout
    assert head.run("pgrep -f blobs", check=False).stdout == ""  # nothing goes on behind our back
    assert head.run(TOKENS, check=False).stdout == ""


def test_disk_that_is_certainly_too_small_is_told_before(head: Host, registry: Registry) -> None:
    head.run("mkdir -p /scratch; mount -t tmpfs -o size=300k none /scratch")
    done = head.run(KEYED + wanted(head, "docker://nvcr.io#nvidia/pytorch:24.01-py3"), check=False)
    head.run("umount /scratch; rmdir /scratch")
    assert done.returncode == 1
    assert re.search(
        r"the disk of /scratch/\S+ is too small: 0\.3 MB are free, 0\.6 MB at least are needed", done.stdout
    )
    assert registry.layers_fetched() == []


def test_disk_that_gets_full_meanwhile_is_told_and_not_tried_again(head: Host) -> None:
    # Room for the layers, none to unpack them.
    head.run("mkdir -p /scratch; mount -t tmpfs -o size=1000k none /scratch")
    done = head.run(KEYED + wanted(head, "docker://nvcr.io#nvidia/pytorch:24.01-py3"), check=False)
    log = head.run(f"cat /fsx/logs/container-downloads/{PYTORCH}.sqsh.log").stdout
    head.run("umount /scratch; rmdir /scratch")
    assert done.returncode == 1
    assert (
        "the disk is full: that of /scratch/slipway-containers-0 or that of /fsx/containers, see 'df -h'" in done.stdout
    )
    assert "this may not be enough" in log
    assert "next try" not in log


def test_without_enroot_the_image_is_told_to_have_failed(head: Host) -> None:
    head.run("mv /usr/local/bin/enroot /srv/enroot")
    done = head.run(wanted(head, "docker://nvcr.io#public/small:1"), check=False)
    head.run("mv /srv/enroot /usr/local/bin/enroot")
    assert "nvcr.io_public_small-1.sqsh enroot is not installed on this node" in done.stdout


# --------------------------------------------------------------------------------------------- kills, and two at a time


def test_killed_import_goes_on_with_the_layers_that_are_here(head: Host, registry: Registry) -> None:
    registry.faults(rate=300_000)  # the largest layer takes two seconds
    run = KEYED + wanted(head, "docker://nvcr.io#nvidia/pytorch:24.01-py3")
    head.put("/srv/run", f"{run} & echo $! >/srv/pid; wait".encode())
    head.run("systemd-run --quiet --collect --unit=killed bash /srv/run")
    registry.wait(
        "[ $(ls /var/tmp/slipway-containers-0/layers | grep -cv '\\.') -ge 3 ] && ls /var/tmp/slipway-containers-0/layers/*.??????????"
    )
    head.run("kill -9 $(cat /srv/pid); systemctl kill --signal=KILL killed || true")
    registry.wait("! systemctl is-active --quiet killed")
    assert head.run("ls /fsx/containers/*.sqsh", check=False).returncode == 2
    assert head.run("ls -d /fsx/containers/.*.partial.*; ls /var/tmp/slipway-containers-0/tmp").stdout != ""
    registry.faults()
    registry.forget()
    assert "imported" in head.run(run).stdout
    assert len(registry.layers_fetched()) == 1  # the others were here
    assert head.run("ls -d /fsx/containers/.*.partial.*", check=False).returncode == 2
    assert head.run("ls /var/tmp/slipway-containers-0/tmp").stdout == ""


def test_killed_program_takes_its_enroot_with_it(head: Host, registry: Registry) -> None:
    registry.faults(rate=100_000)
    run = KEYED + wanted(head, "docker://nvcr.io#nvidia/pytorch:24.01-py3")
    head.put("/srv/run", f"{run} & echo $! >/srv/pid; wait".encode())
    head.run("systemd-run --quiet --collect --unit=alone bash /srv/run")
    registry.wait("pgrep -f 'enroot import' && ls /var/tmp/slipway-containers-0/layers/*.??????????")
    assert head.run(TOKENS).stdout.startswith("/dev/shm/slipway-containers-0-tokens/nvcr.io.")
    head.run("kill -9 $(cat /srv/pid)")
    registry.wait("! pgrep -f '[e]nroot import|[p]arallel|[b]lobs'")
    registry.wait(f'[ -z "$({TOKENS})" ]')
    registry.faults()
    head.run("systemctl kill --signal=KILL alone || true", check=False)


def test_stopped_run_leaves_nothing_behind_and_says_so(head: Host, registry: Registry) -> None:
    registry.faults(rate=100_000)
    run = wanted(head, "docker://nvcr.io#nvidia/pytorch:24.01-py3")
    head.put("/srv/run", f"{KEYED} exec {run}".encode())
    head.run("systemd-run --quiet --collect --unit=stopped bash /srv/run")
    registry.wait("ls /var/tmp/slipway-containers-0/layers/*.??????????")
    head.run("systemctl stop stopped")
    registry.faults()
    assert head.run("ls -d /fsx/containers/.*.partial.*", check=False).returncode == 2
    state = json.loads(head.run("cat /var/lib/slipway/background/containers.json").stdout)
    assert (state["state"], state["detail"]) == ("failed", "stopped: 0 of 1 images are there")
    assert "0 of 1 images are there: stopped" in head.run("cat /fsx/logs/ngc-download.log").stdout


def test_two_runs_share_the_work(head: Host, registry: Registry) -> None:
    registry.faults(rate=400_000)
    lines = [f"docker://nvcr.io#nvidia/{name}" for name in ("pytorch:24.01-py3", "jax:24.01-py3", "moved:1", "moved:2")]
    run = f"{KEYED} export ENROOT_REHEARSAL_LOG=/srv/enroot.log; {wanted(head, *lines)} --at-once 2"
    out = head.run(
        f"{{ {run}; echo first $?; }} >/srv/1 2>&1 & {{ {run}; echo second $?; }} >/srv/2 2>&1 & wait; cat /srv/1 /srv/2"
    ).stdout
    assert "first 0" in out
    assert "second 0" in out
    events = head.run("cat /srv/enroot.log").stdout.splitlines()
    starts = [line.split()[2] for line in events if line.startswith("start")]
    assert sorted(starts) == sorted(lines)  # none twice
    assert out.count("imported (sha256:") == 4
    assert most_at_once("\n".join(events)) == 2  # together no more than one run may


def test_progress_is_told_in_bytes_of_layers(head: Host, registry: Registry) -> None:
    registry.faults(rate=250_000)
    out = head.run(KEYED + wanted(head, "docker://nvcr.io#nvidia/pytorch:24.01-py3")).stdout
    assert re.search(
        r"0 of 1 images are there; 0\.\d MB of 0\.6 MB of layers fetched, 0\.\d MB/s, about \d+ s left", out
    )


# ------------------------------------------------------------------------------------------------------------ apptainer


def test_sif_from_the_same_list(head: Host) -> None:
    head.run("sed -i 's/^CONTAINERS_FORMAT=.*/CONTAINERS_FORMAT=both/' /etc/slipway/node.env")
    run = wanted(head, "docker://nvcr.io/nvidia/jax:24.01-py3")
    out = head.run(KEYED + run).stdout
    head.run("sed -i 's/^CONTAINERS_FORMAT=.*/CONTAINERS_FORMAT=enroot/' /etc/slipway/node.env")
    assert "2 of 2 images are there" in out
    sif = f"/fsx/containers/{JAX}.sif"
    assert "SIF_MAGIC" in head.run(f"head -c 40 {sif}").stdout
    inside = head.run(f"tail --bytes=+4097 {sif} >/srv/inside.sqsh; unsquashfs -cat /srv/inside.sqsh etc/os-release")
    assert inside.stdout == "ID=of-the-image\n"
    listing = head.run("/fsx/containers/list-containers.sh").stdout
    assert sif in listing
    assert "2 images in" in listing
