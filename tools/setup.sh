#!/usr/bin/env bash
# Sets up one environment of the project; skips what is already as the pinned files say.
# Usage: tools/setup.sh deploy|pcluster|rehearsal|test|root|debian|browser|hosts...   (several are done in order)
# Needs: Python 3.10 or newer with venv, node and npm (deploy); apt and root for `debian`.
# On failure: nothing half-made is taken for done, because the stamp is written last. Run it again.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly ROOT=$PWD
readonly TOOLS=$ROOT/.rehearsal-tools
# shellcheck source=tools/debian.sh
source tools/debian.sh

setup::say() { printf 'setup: %s\n' "$*"; }

setup::fault() {
  printf 'setup: FAULT %s\n' "$*" >&2
  exit 3
}

# The newest Python of this machine that is at least 3.10 and can make environments.
setup::python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python3.10 /usr/bin/python3; do
    [[ -n $candidate ]] || continue
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

# setup::stamp_of FILE...: names what a folder is made from: these files, at this place.
setup::stamp_of() {
  { printf '%s\n' "$ROOT" && cat "$@"; } | sha256sum | cut -d' ' -f1
}

setup::venv() {
  local folder=$1 requirements=$2 stamp python
  stamp=$(setup::stamp_of "$requirements")
  if [[ -f $folder/.stamp && $(<"$folder/.stamp") == "$stamp" && -x $folder/bin/python ]]; then
    setup::say "$folder is up to date"
    return
  fi
  if ! python=$(setup::python); then
    debian::install_if_root python3 python3-venv
    python=$(setup::python) || setup::fault "no Python 3.10 or newer with the venv module. Hint: apt-get install python3 python3-venv, or set PYTHON=/path/to/python3"
  fi
  setup::say "$folder from $requirements ..."
  rm -rf "$folder"
  "$python" -m venv "$folder"
  # No cache and no compiled files: the deploy environment must fit AWS CloudShell's 1 GB home.
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --no-deps -r "$requirements"
  printf '%s\n' "$stamp" >"$folder/.stamp"
}

# Puts the project's own packages and commands into an environment, without asking any index for a build tool.
setup::own() {
  local folder=$1 site name
  site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  printf '%s\n' "$ROOT" >"$site/slipway.pth"
  for name in slipway acceptance; do
    # Ctrl-C while the imports run is no traceback either.
    printf '#!%s\nimport sys\n\ntry:\n    from %s.cli import main\n\n    code = main()\nexcept KeyboardInterrupt:\n    code = 130\nsys.exit(code)\n' \
      "$ROOT/$folder/bin/python" "$name" >"$folder/bin/$name"
    chmod +x "$folder/bin/$name"
  done
}

setup::npm() {
  local stamp
  stamp=$(setup::stamp_of package-lock.json)
  if [[ -f node_modules/.stamp && $(<node_modules/.stamp) == "$stamp" ]]; then
    setup::say "node_modules is up to date"
    return
  fi
  command -v npm >/dev/null || setup::fault "npm is missing. Hint: install Node.js 20 or newer (apt-get install nodejs npm)"
  setup::say "node_modules from package-lock.json ..."
  # The cache goes when the packages stand: it would count against CloudShell's home.
  NPM_CACHE=$(mktemp -d "${TMPDIR:-/tmp}/slipway-npm.XXXXXX")
  trap 'rm -rf "$NPM_CACHE"' EXIT
  npm ci --no-audit --no-fund --silent --cache "$NPM_CACHE" || setup::fault "npm ci failed (see above). Hint: is the npm registry reachable?"
  printf '%s\n' "$stamp" >node_modules/.stamp
}

setup::deploy() {
  setup::venv .venv requirements.txt
  setup::own .venv
  setup::npm
}

setup::pcluster() { setup::venv .venv-pcluster requirements-pcluster.txt; }

setup::rehearsal() {
  setup::venv .venv-rehearsal requirements-rehearsal.txt
  setup::own .venv-rehearsal
}

setup::test() {
  setup::venv .venv-test requirements-dev.txt
  setup::own .venv-test
}

# Says at once everything that local hosts need and this user or machine lacks.
setup::root() {
  ((EUID != 0)) || return 0
  local missing=()
  mapfile -t missing < <(debian::missing)
  printf 'setup: missing: root (the local hosts are namespaces and mounts)\n' >&2
  ((${#missing[@]} == 0)) || printf 'setup: missing packages: %s\n' "${missing[*]}" >&2
  printf 'setup: Hint: run make rehearse as root; it installs what is missing\n' >&2
  return 3
}

setup::debian() { debian::host_packages; }

setup::browser() { debian::test_packages; }

setup::hosts() { bash rehearsal/standins/setup.sh "$TOOLS"; }

setup::main() {
  local part
  (($# > 0)) || setup::fault "name what to set up: deploy, pcluster, rehearsal, test, debian, browser, hosts"
  for part in "$@"; do
    case $part in
      deploy | pcluster | rehearsal | test | root | debian | browser | hosts) "setup::$part" ;;
      *) setup::fault "$part is not a part of the set-up. Hint: deploy, pcluster, rehearsal, test, root, debian, browser, hosts" ;;
    esac
  done
}

setup::main "$@"
