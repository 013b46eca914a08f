#!/usr/bin/env bash
# Sets up one environment of the project; skips what is already as the pinned files say.
# Usage: tools/setup.sh deploy|pcluster|rehearsal|test|gpu-suite|root|debian|browser|hosts|wheel|hand-back...   (done in this order)
# Needs: Python 3.11 or newer with venv, node and npm (deploy); apt and root for `debian`.
# On failure: one line `setup: FAULT`. The stamp of a folder is written last, so nothing half-made counts as done.
set -euo pipefail

cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$(pwd -P) # the same through a symbolic link: another place would mean building everything anew
readonly ROOT
readonly TOOLS=$ROOT/.rehearsal-tools
readonly MADE=(.venv .venv-gpu-suite .venv-pcluster .venv-rehearsal .venv-test .rehearsal-tools .cache node_modules rehearsals)
readonly PARTS="deploy, pcluster, rehearsal, test, gpu-suite, root, debian, browser, hosts, wheel, hand-back"
readonly FULL_MB=10 # venv unpacks pip, 3 MB, in TMPDIR
# shellcheck source=tools/debian.sh
source tools/debian.sh

setup::say() { printf 'setup: %s\n' "$*"; }

setup::fault() {
  printf 'setup: FAULT %s\n' "$*" >&2
  exit 3
}

# setup::fits PYTHON: whether it is new enough and can make environments.
setup::fits() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# $PYTHON or python3 where they fit, else the newest of this machine that does.
setup::python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
    if [[ -n $candidate ]] && setup::fits "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

setup::has_dnf() { ! command -v apt-get >/dev/null && command -v dnf >/dev/null; }

# The same, after Debian's or Ubuntu's package was installed where this user may install it.
setup::python_installed() {
  local packages=(python3 python3-venv)
  setup::python && return
  # Ubuntu 22.04's python3 is 3.10; its 3.11 is a package next to it.
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || packages=(python3.11 python3.11-venv)
  if ((EUID == 0)) && command -v apt-get >/dev/null; then
    debian::install_if_root "${packages[@]}" >&2 && setup::python && return
  fi
  local install="sudo apt-get install --no-install-recommends ${packages[*]}"
  # Amazon Linux 2023, as in AWS CloudShell: python3 stays 3.9, the newer one is next to it and brings venv.
  setup::has_dnf && install="sudo dnf install python3.11"
  setup::fault "no Python 3.11 or newer with the venv module. Hint: $install; or set PYTHON=/path/to/python3.11"
}

# setup::stamp_of FILE...: names what a folder is made from: these files, at this place.
setup::stamp_of() {
  { printf '%s\n' "$ROOT" && cat "$@"; } | { sha256sum 2>/dev/null || shasum -a 256; } | cut -d' ' -f1 # macOS: shasum
}

# setup::may_write FOLDER: ends here when the folder is another user's, as after an earlier `sudo make`.
setup::may_write() {
  local path
  for path in "$1" "$1/bin" "$1/.stamp"; do
    [[ ! -e $path || -w $path ]] ||
      setup::fault "$ROOT/$1 belongs to $(stat -c %U "$path" 2>/dev/null || echo another user) and cannot be written. Hint: sudo chown -R $(id -un) '$ROOT/$1'"
  done
}

# setup::room: how much is free where the set-up writes, the fullest file system first.
setup::room() {
  { df -Pk "$ROOT" "${TMPDIR:-/tmp}" 2>/dev/null || true; } | sort -u | sort -n -k4,4 | while read -r _ _ _ free _ mount; do
    [[ $free == *[!0-9]* ]] || printf '%s MB on %s, ' $((free / 1024)) "$mount"
  done
}

# setup::stamp FILE STAMP: writes it, or ends here.
setup::stamp() {
  local room
  printf '%s\n' "$2" >"$1" && return
  room=$(setup::room)
  setup::fault "$ROOT/$1 cannot be written (see above). Hint: make room; free: ${room%, }"
}

# setup::install RULE HINT COMMAND...: runs it, or ends here. Its errors are shown and read: a full disk has another hint.
setup::install() {
  local rule=$1 hint=$2 said rc=0 room
  shift 2
  {
    said=$("$@" 2>&1 >&3 | while IFS= read -r line; do
      printf '%s\n' "$line" >&4
      printf '%s\n' "$line"
    done) || rc=$?
  } 3>&1 4>&2
  ((rc != 0)) || return 0
  room=$(setup::room)
  # venv hides what pip says: a file system with next to nothing free is the reason too.
  if [[ $said == *ENOSPC* || $said == *"No space left on device"* ]] || { [[ $room ]] && ((${room%% *} < FULL_MB)); }; then
    hint="a file system is full; free: ${room%, }"
  fi
  setup::fault "$rule (see above). Hint: $hint"
}

# setup::venv FOLDER REQUIREMENTS: the environment with exactly these packages.
setup::venv() {
  local folder=$1 requirements=$2 stamp python
  stamp=$(setup::stamp_of "$requirements")
  if [[ -f $folder/.stamp && $(<"$folder/.stamp") == "$stamp" && -x $folder/bin/python ]]; then
    setup::say "$folder is up to date"
    return
  fi
  setup::may_write "$folder"
  setup::say "$folder from $requirements ..."
  # A whole environment of this place only takes the difference; a half-made or moved one is built anew.
  if ! [[ -f $folder/.stamp ]] || ! grep -qF "$ROOT/$folder/bin/python" "$folder/bin/pip" || ! setup::fits "$folder/bin/python"; then
    python=$(setup::python_installed) || exit
    rm -rf "$folder"
    setup::install "$python cannot make an environment" "name another Python: PYTHON=/path/to/python3.11" "$python" -m venv "$folder"
  fi
  rm -f "$folder/.stamp"
  # No cache and no compiled files: the deploy environment must fit AWS CloudShell's 1 GB home.
  setup::install "pip could not install $requirements into $folder" "is the package index reachable?" \
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --no-deps -r "$requirements"
  setup::remove_unlisted "$folder" "$requirements"
  setup::stamp "$folder/.stamp" "$stamp"
}

# setup::names: the names of packages in lines NAME==VERSION, spelt in one way.
setup::names() { sed -n 's/==.*//p' | tr 'A-Z_.' 'a-z--' | sort; }

setup::remove_unlisted() {
  local folder=$1 requirements=$2 unlisted
  unlisted=$(comm -23 <("$folder/bin/python" -m pip list --disable-pip-version-check --format=freeze --exclude pip --exclude setuptools --exclude slipway | setup::names) <(setup::names <"$requirements"))
  # shellcheck disable=SC2086 # one word a package
  [[ -z $unlisted ]] || "$folder/bin/python" -m pip uninstall --quiet --yes $unlisted
}

# setup::own FOLDER: the project itself with its commands, as a link to this checkout.
setup::own() {
  local folder=$1 stamp
  stamp=$(setup::stamp_of pyproject.toml)
  [[ -f $folder/.stamp-own && $(<"$folder/.stamp-own") == "$stamp" && -x $folder/bin/slipway ]] && return
  setup::may_write "$folder"
  setup::install "pip could not install the project into $folder" "remove $folder, then the same again" \
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --no-compile --editable .
  setup::stamp "$folder/.stamp-own" "$stamp"
}

setup::npm() {
  local stamp cache rc=0
  stamp=$(setup::stamp_of package-lock.json)
  if [[ -f node_modules/.stamp && $(<node_modules/.stamp) == "$stamp" ]]; then
    setup::say "node_modules is up to date"
    return
  fi
  setup::may_write node_modules
  local install="apt-get install nodejs npm"
  setup::has_dnf && install="sudo dnf install nodejs22 nodejs22-npm"
  command -v npm >/dev/null || setup::fault "npm is missing. Hint: install Node.js 22 or newer with npm ($install)"
  setup::say "node_modules from package-lock.json ..."
  # The cache is removed afterwards: it would count against CloudShell's home.
  cache=$(mktemp -d "${TMPDIR:-/tmp}/slipway-npm.XXXXXX") || setup::fault "$NO_TEMPORARY"
  (setup::install "npm ci failed" "is the npm registry reachable?" \
    npm ci --no-audit --no-fund --loglevel=error --cache "$cache" >/dev/null) || rc=$?
  rm -rf "$cache"
  ((rc == 0)) || exit "$rc"
  setup::stamp node_modules/.stamp "$stamp"
}

setup::deploy() {
  setup::venv .venv requirements.txt
  setup::own .venv
  setup::npm
}

setup::pcluster() { setup::venv .venv-pcluster requirements-pcluster.txt; }

setup::rehearsal() {
  setup::venv .venv-rehearsal requirements-rehearsal.txt
  setup::cdk_library
}

# Unpacks CDK's library into the cache of the rehearsals: two that unpack it at the same time leave it incomplete.
setup::cdk_library() {
  [[ -x .venv/bin/python ]] || return 0
  JSII_RUNTIME_PACKAGE_CACHE_ROOT=$ROOT/.cache/jsii JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=20 \
    .venv/bin/python -c 'import aws_cdk' || setup::fault "CDK's library cannot be loaded (see above). Hint: is Node.js 22 or newer installed?"
}

setup::test() {
  setup::venv .venv-test requirements-dev.txt
  setup::own .venv-test
}

# torch for the CPU. The ordinary wheel does not work without 3 GB of CUDA libraries, which are not installed here. What
# the suite's programs import is compiled here: local hosts see it read-only, and each rank would compile it for itself.
setup::gpu_suite() {
  setup::venv .venv-gpu-suite requirements-gpu-suite.txt
  env -u PYTHONDONTWRITEBYTECODE .venv-gpu-suite/bin/python -c 'import torch, torch._dynamo, torch.distributed.fsdp' 2>/dev/null || {
    rm -f .venv-gpu-suite/.stamp
    setup::fault "torch cannot be imported from .venv-gpu-suite. Hint: PIP_EXTRA_INDEX_URL=... with an index that has torch's CPU builds (2.13.0+cpu)"
  }
}

# Prints everything that local hosts need and this user or machine lacks.
setup::root() {
  ((EUID != 0)) || return 0
  local missing=()
  mapfile -t missing < <(debian::missing "${DEBIAN_HOST_PACKAGES[@]}")
  printf 'setup: missing: root (the local hosts are namespaces and mounts)\n' >&2
  ((${#missing[@]} == 0)) || printf 'setup: missing packages: %s\n' "${missing[*]}" >&2
  printf 'setup: Hint: run make rehearse as root; it installs what is missing\n' >&2
  return 3
}

setup::debian() { debian::host_packages; }

setup::browser() { debian::test_packages; }

setup::hosts() { bash rehearsal/standins/setup.sh "$TOOLS"; }

setup::wheel() {
  "$ROOT/.venv/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --wheel-dir dist .
  setup::say "wrote $(ls dist/slipway-*.whl)"
}

# After `sudo make` in a user's checkout, what root made there belongs to the user.
setup::hand_back() {
  [[ $EUID == 0 && -n ${SUDO_UID:-} && $(find . -maxdepth 0 -uid "$SUDO_UID") == . ]] || return 0
  local name
  for name in "${MADE[@]}"; do
    [[ ! -e $name ]] || find "$name" -uid 0 -exec chown -h "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" {} +
  done
}

setup::main() {
  local part
  (($# > 0)) || setup::fault "no part is named. Hint: $PARTS"
  # Two set-ups at the same time would install into one folder: the second one waits.
  if command -v flock >/dev/null; then
    exec 9<tools
    flock --nonblock 9 || { setup::say "another set-up of this checkout runs; waiting for it ..." && flock 9; }
  fi
  trap setup::hand_back EXIT
  for part in "$@"; do
    case $part in
      deploy | pcluster | rehearsal | test | gpu-suite | root | debian | browser | hosts | wheel) "setup::${part//-/_}" ;;
      hand-back) ;; # done by the trap
      *) setup::fault "$part is not a part of the set-up. Hint: $PARTS" ;;
    esac
  done
}

setup::main "$@"
