# shellcheck shell=bash
# fetch.sh: fetch one file from s3:// or http(s)://, in bounded time. Sourced by all.sh.

readonly FETCH_TIMEOUT_S=120
readonly FETCH_MAX_BYTES=2147483648

fetch::once() { # URL DESTINATION
  case $1 in
    s3://*) timeout --kill-after=5 "$FETCH_TIMEOUT_S" aws s3 cp --only-show-errors "$1" "$2" ;;
    https://*) fetch::curl '=https' "$1" "$2" ;;
    http://*) fetch::curl '=http,https' "$1" "$2" ;;
    *)
      log::die "cannot fetch '$1': neither s3:// nor http(s)://" "correct SOFTWARE_MIRROR or the line of software.tsv"
      ;;
  esac
}

fetch::patiently() { # URL DESTINATION: with up to four tries
  retry::run 4 2 fetch::once "$1" "$2"
}

fetch::curl() { # PROTOCOLS URL DESTINATION: an https address is never followed to plain http
  curl --fail --silent --show-error --location --max-redirs 5 --proto "$1" --proto-redir "$1" \
    --connect-timeout 10 --max-time "$FETCH_TIMEOUT_S" --max-filesize "$FETCH_MAX_BYTES" --output "$3" -- "$2"
}

fetch::sha256() { # FILE
  local sum
  sum=$(sha256sum <"$1")
  printf '%s' "${sum%% *}"
}
