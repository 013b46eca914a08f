# shellcheck shell=bash
# software.sh: the releases that software.tsv pins. Sourced by all.sh.

readonly SLIPWAY_SITE_SOFTWARE=/etc/slipway/software.tsv
readonly SLIPWAY_SOFTWARE_DIR=/opt/slipway/software
readonly SLIPWAY_CACHE_DIR=/var/cache/slipway

# Sets SOFTWARE_VERSION, SOFTWARE_SHA256, SOFTWARE_URL from the first line that fits, the site's lines first.
software::find() { # NAME [VERSION]
  local table name version sha256 url
  for table in "$SLIPWAY_SITE_SOFTWARE" "$SLIPWAY_BUNDLE/nodes/software.tsv"; do
    [ -r "$table" ] || continue
    while IFS=$'\t' read -r name version sha256 url; do
      [[ $name == "$1" && ($# -lt 2 || $version == "${2:-}") ]] || continue
      [[ $sha256 =~ ^[0-9a-f]{64}$ && -n $url ]] ||
        log::die "$table: line of $1: not NAME, VERSION, SHA256, URL separated by tabs" "correct the line"
      SOFTWARE_VERSION=$version SOFTWARE_SHA256=$sha256 SOFTWARE_URL=$url
      return 0
    done <"$table"
  done
  return 1
}

# With a mirror the file keeps its name, and the mirror's SHA256SUMS says what it must hash to.
software::use_mirror() { # MIRROR: sets SOFTWARE_URL and SOFTWARE_SHA256
  local file=${SOFTWARE_URL##*/} sums line
  sums=$(mktemp)
  fetch::patiently "${1%/}/SHA256SUMS" "$sums" ||
    log::die "cannot read ${1%/}/SHA256SUMS" "SOFTWARE_MIRROR must hold the files and a SHA256SUMS made with sha256sum"
  SOFTWARE_SHA256=
  while IFS= read -r line; do
    # The second column may have "*" (binary) or "./" before the name.
    if [[ $line =~ ^([0-9a-f]{64})[[:space:]]+\*?(\./)?(.+)$ && ${BASH_REMATCH[3]} == "$file" ]]; then
      SOFTWARE_SHA256=${BASH_REMATCH[1]}
    fi
  done <"$sums"
  rm -f "$sums"
  [ -n "$SOFTWARE_SHA256" ] || log::die "${1%/}/SHA256SUMS has no line of $file" "add $file to the mirror"
  SOFTWARE_URL=${1%/}/$file
}

# Fetches what software::find chose; sets SOFTWARE_FILE to a file that was held against its checksum.
software::download() { # NAME
  local mirror origin='from upstream' fresh found
  mirror=$(env::get SOFTWARE_MIRROR '')
  if [ -n "$mirror" ]; then
    software::use_mirror "$mirror"
    origin='from mirror'
  fi
  mkdir -p "$SLIPWAY_CACHE_DIR"
  SOFTWARE_FILE=$SLIPWAY_CACHE_DIR/${SOFTWARE_SHA256:0:12}-${SOFTWARE_URL##*/}
  [ ! -f "$SOFTWARE_FILE" ] || return 0
  fresh=$(file::fresh "$SOFTWARE_FILE")
  touch "$fresh" || log::die "cannot write in $SLIPWAY_CACHE_DIR" "is it read-only or full? see 'df -h $SLIPWAY_CACHE_DIR'"
  fetch::patiently "$SOFTWARE_URL" "$fresh" ||
    log::die "cannot fetch $SOFTWARE_URL" "no way to the internet? set SOFTWARE_MIRROR=s3://... in /etc/slipway/site.env"
  found=$(fetch::sha256 "$fresh")
  if [ "$found" != "$SOFTWARE_SHA256" ]; then
    rm -f "$fresh"
    log::die "$SOFTWARE_URL has sha256 $found, expected $SOFTWARE_SHA256" \
      "the file is not the one that was pinned: do not use it; find out why before you change software.tsv"
  fi
  mv --no-target-directory "$fresh" "$SOFTWARE_FILE"
  log::info "$1 $SOFTWARE_VERSION $origin, sha256 ${SOFTWARE_SHA256:0:12}"
}

# Unpacks a pinned release to /opt/slipway/software/NAME/SHA12 and points .../NAME/current to it, each in one step.
software::install() { # NAME PROGRAM
  local home=$SLIPWAY_SOFTWARE_DIR/$1 work release
  software::find "$1" || log::die "software.tsv has no line of $1" "add one to $SLIPWAY_SITE_SOFTWARE"
  software::download "$1"
  release=$home/${SOFTWARE_SHA256:0:12}
  mkdir -p "$home"
  if [ ! -d "$release" ]; then
    rm -rf "$home"/.unpack.*
    work=$(mktemp -d "$home/.unpack.XXXXXX")
    tar --extract --gzip --no-same-owner --strip-components=1 --file "$SOFTWARE_FILE" --directory "$work"
    [ -x "$work/$2" ] || log::die "${SOFTWARE_URL##*/} holds no program $2" "the file in the mirror is not the release"
    # A small file that stands for the release: unit::ensure need not hash a program of 100 MB each time.
    printf '%s\n' "$SOFTWARE_SHA256" >"$work/.sha256"
    chmod 0755 "$work"
    mv --no-target-directory "$work" "$release"
  fi
  file::link "${release##*/}" "$home/current"
}
