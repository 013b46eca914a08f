# shellcheck shell=bash
# job-places.sh: where containers of jobs are on this node. Sourced by job-begin.sh and job-end.sh.

job::storage() { # the directory of layers and unpacked images, by enroot.conf; empty without one
  sed --quiet 's/^ENROOT_TEMP_PATH  *//p' /etc/enroot/enroot.conf 2>/dev/null || true
}

job::own_names() { # 0 where the names of --container-name are the job's own (35-container-runtime)
  grep --quiet --no-messages container_scope=job /opt/slurm/etc/plugstack.conf.d/pyxis.conf
}
