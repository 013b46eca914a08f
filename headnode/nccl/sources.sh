# shellcheck shell=bash
# sources.sh: where the sources of NCCL, its plugin and its tests come from. Sourced by install-nccl-shared.sh.

readonly SOURCES_UPSTREAM=https://github.com

# The version that software.tsv names, of a tag: without "v" in front and "-aws" behind.
sources::version() { # NAME TAG
  local version=${2#v} form='^[0-9]+(\.[0-9]+)+$' example=v1.17.2-aws
  version=${version%-aws}
  if [ "$1" = nccl ]; then
    form='^[0-9]+(\.[0-9]+)+-[0-9]+$' example=v2.28.7-1
  fi
  [[ $version =~ $form ]] ||
    log::die "$1 version '$2': not of the form $example" "give a tag of the project: see the first lines of $0"
  printf '%s' "$version"
}

sources::upstream() { # NAME VERSION
  case $1 in
    nccl) printf '%s/NVIDIA/nccl/archive/v%s.tar.gz' "$SOURCES_UPSTREAM" "$2" ;;
    aws-ofi-nccl) printf '%s/aws/aws-ofi-nccl/archive/v%s.tar.gz' "$SOURCES_UPSTREAM" "$2" ;;
  esac
}

sources::pin() { # NAME VERSION WORK_DIRECTORY
  local file=$3/$1.tar.gz sha256 url
  local -A pin=()
  if software::find pin "$1" "$2"; then
    log::info "$1 $2 is pinned already: ${pin[sha256]}"
    return 0
  fi
  url=$(sources::upstream "$1" "$2")
  fetch::patiently "$url" "$file" || log::die "cannot fetch $url" "is there such a tag, and a way to the internet?"
  sha256=$(fetch::sha256 "$file")
  {
    [ ! -r "$SLIPWAY_SITE_SOFTWARE" ] || cat "$SLIPWAY_SITE_SOFTWARE"
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$sha256" "$url"
  } >"$3/software.tsv"
  file::put "$3/software.tsv" "$SLIPWAY_SITE_SOFTWARE" 0644
  log::info "$1 $2: sha256 $sha256 as served now; compare it with a second source before you build"
}

sources::pin_both() { # [NCCL_TAG [OFI_TAG]]
  local nccl ofi work
  nccl=$(sources::version nccl "${1:-$(env::get NCCL_VERSION)}")
  ofi=$(sources::version aws-ofi-nccl "${2:-$(env::get OFI_VERSION)}")
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  sources::pin nccl "$nccl" "$work"
  sources::pin aws-ofi-nccl "$ofi" "$work"
  trap - EXIT
  rm -rf "$work"
}

# The version of nccl-tests: the first line of software.tsv.
sources::tests_version() {
  local -A pin=()
  software::find pin nccl-tests || log::die 'software.tsv has no line of nccl-tests' "add one to $SLIPWAY_SITE_SOFTWARE"
  printf '%s' "${pin[version]}"
}

# Unpacks NAME VERSION to DIRECTORY/NAME. The projects name their archives after the tag alone: in a mirror it is
# NAME-VERSION.tar.gz.
sources::unpack() { # NAME VERSION DIRECTORY
  local mirror
  local -A pin
  mirror=$(env::get SOFTWARE_MIRROR '')
  if [ -n "$mirror" ]; then
    pin=([name]=$1 [version]=$2 [url]=$mirror/$1-$2.tar.gz)
  else
    software::find pin "$1" "$2" ||
      log::die "software.tsv has no line of $1 $2" "run this script with --pin first, and review $SLIPWAY_SITE_SOFTWARE"
  fi
  software::download pin
  mkdir "$3/$1"
  tar --extract --gzip --no-same-owner --strip-components=1 --file "${pin[file]}" --directory "$3/$1" ||
    build::failed "unpacking ${pin[file]}" 1 "$3"
}
