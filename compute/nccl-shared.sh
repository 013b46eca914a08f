# shellcheck shell=sh
# nccl-shared.sh (/etc/profile.d): the NCCL on the shared file system, for login shells and for jobs that source it.
# Plain sh, starts no program in users' shells, and never overrides a variable that is set already. Settings come from
# node.env.
_slipway_fsx=/fsx
_slipway_environment=recommended
if [ -r /etc/slipway/node.env ]; then
  while IFS= read -r _slipway_line || [ -n "$_slipway_line" ]; do
    case $_slipway_line in
      FSX_MOUNT=*) _slipway_fsx=${_slipway_line#*=} ;;
      NCCL_ENVIRONMENT=*) _slipway_environment=${_slipway_line#*=} ;;
    esac
  done </etc/slipway/node.env
fi

# Root's shells run no file that another account may have written.
_slipway_line=$_slipway_fsx/nccl/setup-nccl-env.sh
if [ "$(id -u)" -eq 0 ] &&
  [ -n "$(find "$_slipway_fsx/nccl" "$_slipway_line" -maxdepth 0 \( ! -user 0 -o -perm /022 \) 2>/dev/null)" ]; then
  echo "slipway: $_slipway_line is not root's alone: not used in root's shells" >&2
elif [ -r "$_slipway_line" ]; then
  SLIPWAY_NCCL_DIR=$_slipway_fsx/nccl
  export SLIPWAY_NCCL_DIR
  # shellcheck disable=SC1091  # made by install-nccl-shared.sh, on the cluster
  . "$SLIPWAY_NCCL_DIR/setup-nccl-env.sh"
fi

if [ "$_slipway_environment" = legacy ]; then
  # What older guides set, as they list it, for those who must reproduce old figures.
  case ":${LD_LIBRARY_PATH:-}:" in
    *:/usr/local/lib:*) ;;
    *) LD_LIBRARY_PATH=/usr/local/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} ;;
  esac
  case ":${LIBRARY_PATH:-}:" in
    *:/usr/local/lib:*) ;;
    *) LIBRARY_PATH=/usr/local/lib${LIBRARY_PATH:+:$LIBRARY_PATH} ;;
  esac
  : "${FI_PROVIDER:=efa}" "${FI_EFA_USE_DEVICE_RDMA:=1}" "${NCCL_PROTO:=simple}" "${NCCL_ALGO:=Ring}"
  : "${NCCL_MIN_NRINGS:=8}" "${NCCL_DEBUG:=INFO}"
  export LD_LIBRARY_PATH LIBRARY_PATH FI_PROVIDER FI_EFA_USE_DEVICE_RDMA NCCL_PROTO NCCL_ALGO NCCL_MIN_NRINGS NCCL_DEBUG
else
  : "${NCCL_SOCKET_IFNAME:=^docker,lo,veth}"
  export NCCL_SOCKET_IFNAME
  # With EFA a missing plugin is to fail, not to fall back to sockets in silence. The kernel names EFA devices rdmap*
  # or efa_*.
  for _slipway_device in /sys/class/infiniband/rdmap* /sys/class/infiniband/efa_*; do
    if [ -e "$_slipway_device" ]; then
      : "${NCCL_NET:=AWS Libfabric}"
      export NCCL_NET
      break
    fi
  done
fi
unset _slipway_fsx _slipway_environment _slipway_line _slipway_device
