# shellcheck shell=bash
# job-places.sh: where containers of jobs are on this node. Sourced by job-begin.sh and job-end.sh.

job::storage() { # the directory of layers and unpacked images, by enroot.conf; empty without one
  sed --quiet 's/^ENROOT_TEMP_PATH  *//p' /etc/enroot/enroot.conf 2>/dev/null || true
}
