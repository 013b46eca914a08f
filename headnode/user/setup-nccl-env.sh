# shellcheck shell=sh
# setup-nccl-env.sh: the paths of the NCCL that install-nccl-shared.sh built. Sourced by /etc/profile.d/nccl-shared.sh;
# by hand: SLIPWAY_NCCL_DIR=/fsx/nccl; . /fsx/nccl/setup-nccl-env.sh
: "${SLIPWAY_NCCL_DIR:=/fsx/nccl}"
if [ -r "$SLIPWAY_NCCL_DIR/.nccl_version" ]; then
  read -r NCCL_VERSION <"$SLIPWAY_NCCL_DIR/.nccl_version" || true
fi
NCCL_HOME=$SLIPWAY_NCCL_DIR/current
# The plugin's directory differs between its versions: take the one that holds it.
for _slipway_lib in "$NCCL_HOME"/lib "$NCCL_HOME"/plugin/lib "$NCCL_HOME"/plugin/lib/*-linux-gnu; do
  if [ -d "$_slipway_lib" ]; then
    case ":${LD_LIBRARY_PATH:-}:" in
      *":$_slipway_lib:"*) ;;
      *) LD_LIBRARY_PATH=$_slipway_lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} ;;
    esac
  fi
done
LIBRARY_PATH=$NCCL_HOME/lib${LIBRARY_PATH:+:$LIBRARY_PATH}
export NCCL_VERSION NCCL_HOME LD_LIBRARY_PATH LIBRARY_PATH
unset _slipway_lib
