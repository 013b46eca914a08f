# shellcheck shell=sh
# setup-nccl-env.sh: the paths of the NCCL that install-nccl-shared.sh built. Sourced by /etc/profile.d/nccl-shared.sh;
# by hand: SLIPWAY_NCCL_DIR=/fsx/nccl; . /fsx/nccl/setup-nccl-env.sh
# Sets NCCL_HOME to one version, not to "current": what runs keeps it when another version is put in use, and all steps
# of a Slurm job get the one that its first shell got.
: "${SLIPWAY_NCCL_DIR:=/fsx/nccl}"

# The directories of $1 without those of other versions, and with those that follow in front where they are missing.
_slipway_paths() { # VALUE DIRECTORY ...
  _slipway_left=$1: _slipway_kept=
  shift
  while [ -n "$_slipway_left" ]; do
    _slipway_path=${_slipway_left%%:*} _slipway_left=${_slipway_left#*:}
    case $_slipway_path in
      '') ;;
      "$NCCL_HOME"/*) _slipway_kept=${_slipway_kept:+$_slipway_kept:}$_slipway_path ;;
      "$SLIPWAY_NCCL_DIR"/*) ;;
      *) _slipway_kept=${_slipway_kept:+$_slipway_kept:}$_slipway_path ;;
    esac
  done
  for _slipway_path in "$@"; do
    case ":$_slipway_kept:" in
      *":$_slipway_path:"*) ;;
      *) _slipway_kept=$_slipway_path${_slipway_kept:+:$_slipway_kept} ;;
    esac
  done
}

if [ -z "${SLURM_JOB_ID:-}" ] || [ "${SLIPWAY_NCCL_JOB:-}" != "$SLURM_JOB_ID" ] || [ ! -d "${NCCL_HOME:-}" ]; then
  NCCL_HOME=$(CDPATH='' cd -P -- "$SLIPWAY_NCCL_DIR/current" 2>/dev/null && pwd) || NCCL_HOME=
  SLIPWAY_NCCL_JOB=${SLURM_JOB_ID:-}
fi
if [ -r "$NCCL_HOME/.nccl_version" ]; then
  read -r NCCL_VERSION <"$NCCL_HOME/.nccl_version" || true
  _slipway_paths "${LD_LIBRARY_PATH:-}" "$NCCL_HOME/lib" "$NCCL_HOME/plugin/lib"
  LD_LIBRARY_PATH=$_slipway_kept
  _slipway_paths "${LIBRARY_PATH:-}" "$NCCL_HOME/lib"
  LIBRARY_PATH=$_slipway_kept
  export NCCL_VERSION NCCL_HOME LD_LIBRARY_PATH LIBRARY_PATH SLIPWAY_NCCL_JOB
  unset _slipway_left _slipway_kept _slipway_path
fi
unset -f _slipway_paths
