# shellcheck shell=bash
# software.sh: the releases that software.tsv pins. Sourced by all.sh.
#
# A pin is an associative array of the caller with the keys name, version, sha256, url and, once it was fetched, file.
# The functions take the name of that array.
# shellcheck disable=SC2178  # "local -n" is a reference to that array, not a string

readonly SLIPWAY_SITE_SOFTWARE=/etc/slipway/software.tsv
readonly SLIPWAY_SOFTWARE_DIR=/opt/slipway/software
readonly SLIPWAY_CACHE_DIR=/var/cache/slipway

# Fills PIN from the first line that fits; the site's lines come first. Returns 1 when no line fits.
software::find() { # PIN NAME [VERSION]
  local -n _pin=$1
  local table name version sha256 url
  for table in "$SLIPWAY_SITE_SOFTWARE" "$SLIPWAY_BUNDLE/nodes/software.tsv"; do
    [ -r "$table" ] || continue
    while IFS=$'\t' read -r name version sha256 url; do
      [[ $name == "$2" && ($# -lt 3 || $version == "${3:-}") ]] || continue
      [[ $sha256 =~ ^[0-9a-f]{64}$ && -n $url ]] ||
        log::die "$table: line of $2: not NAME, VERSION, SHA256, URL separated by tabs" "correct the line"
      _pin=([name]=$name [version]=$version [sha256]=$sha256 [url]=$url)
      return 0
    done <"$table"
  done
  return 1
}

# From here on, this script and what it starts fetch the mirror's SHA256SUMS once.
software::fetch_list_once() { # NAME: of this run, in a file name
  export SLIPWAY_MIRROR_LIST=/run/slipway/SHA256SUMS.$1
  mkdir -p /run/slipway
  rm -f "$SLIPWAY_MIRROR_LIST"
}

# Prints the checksum that the mirror's SHA256SUMS has for a file; returns 1 when it has none, and 2 when there is no
# SHA256SUMS.
software::mirror_sum() { # MIRROR FILE [FETCH]
  local kept=${SLIPWAY_MIRROR_LIST:-} list line sum=''
  list=${kept:-$(mktemp)}
  if [ ! -s "$list" ]; then
    if ! "${3:-fetch::patiently}" "${1%/}/SHA256SUMS" "$list.new"; then
      rm -f "$list" "$list.new"
      return 2
    fi
    mv "$list.new" "$list"
  fi
  while IFS= read -r line; do
    # The second column may have "*" (binary) or "./" before the name.
    if [[ $line =~ ^([0-9a-f]{64})[[:space:]]+\*?(\./)?(.+)$ && ${BASH_REMATCH[3]} == "$2" ]]; then
      sum=${BASH_REMATCH[1]}
    fi
  done <"$list"
  [ -n "$kept" ] || rm -f "$list"
  [ -n "$sum" ] && printf '%s' "$sum"
}

# Takes the file of the same name from the mirror, whose SHA256SUMS has the checksum that it must have.
software::use_mirror() { # PIN MIRROR
  local -n _pin=$1
  local file=${_pin[url]##*/} sum status=0
  sum=$(software::mirror_sum "$2" "$file") || status=$?
  [ "$status" -ne 2 ] ||
    log::die "cannot read ${2%/}/SHA256SUMS" "SOFTWARE_MIRROR must hold the files and a SHA256SUMS made with sha256sum"
  [ "$status" -eq 0 ] || log::die "${2%/}/SHA256SUMS has no line of $file" "add $file to the mirror"
  _pin[sha256]=$sum
  _pin[url]=${2%/}/$file
}

# Fetches the pinned file and compares it with its checksum; PIN gets its path as "file".
software::download() { # PIN
  local -n _pin=$1
  local mirror origin='from upstream' file fresh actual
  mirror=$(env::get SOFTWARE_MIRROR '')
  if [ -n "$mirror" ]; then
    software::use_mirror "$1" "$mirror"
    origin='from mirror'
  fi
  mkdir -p "$SLIPWAY_CACHE_DIR"
  file=$SLIPWAY_CACHE_DIR/${_pin[sha256]:0:12}-${_pin[url]##*/}
  _pin[file]=$file
  [ ! -f "$file" ] || return 0
  fresh=$(file::fresh "$file")
  touch "$fresh" ||
    log::die "cannot write in $SLIPWAY_CACHE_DIR" "is it read-only or full? see 'df -h $SLIPWAY_CACHE_DIR'"
  fetch::patiently "${_pin[url]}" "$fresh" || log::die "cannot fetch ${_pin[url]}" \
    "no network path to the internet? set SOFTWARE_MIRROR=s3://... in /etc/slipway/site.env"
  actual=$(fetch::sha256 "$fresh")
  if [ "$actual" != "${_pin[sha256]}" ]; then
    rm -f "$fresh"
    log::die "${_pin[url]} has sha256 $actual, expected ${_pin[sha256]}" \
      "the file is not the one that was pinned: do not use it; find out why before you change software.tsv"
  fi
  mv --no-target-directory "$fresh" "$file"
  log::info "${_pin[name]} ${_pin[version]} $origin, sha256 ${_pin[sha256]:0:12}"
}

# Unpacks a pinned release to /opt/slipway/software/NAME/SHA12 and points .../NAME/current to it, each in one step.
software::install() { # NAME PROGRAM
  local home=$SLIPWAY_SOFTWARE_DIR/$1 work release
  local -A pin=()
  software::find pin "$1" || log::die "software.tsv has no line of $1" "add one to $SLIPWAY_SITE_SOFTWARE"
  software::download pin
  release=$home/${pin[sha256]:0:12}
  mkdir -p "$home"
  if [ ! -d "$release" ]; then
    rm -rf "$home"/.unpack.*
    work=$(mktemp -d "$home/.unpack.XXXXXX")
    tar --extract --gzip --no-same-owner --strip-components=1 --file "${pin[file]}" --directory "$work"
    [ -x "$work/$2" ] || log::die "${pin[url]##*/} has no program $2" "the file in the mirror is not the release"
    # unit::ensure hashes this small file in place of a program of 100 MB.
    printf '%s\n' "${pin[sha256]}" >"$work/.sha256"
    chmod 0755 "$work"
    mv --no-target-directory "$work" "$release"
  fi
  file::link "${release##*/}" "$home/current"
}
