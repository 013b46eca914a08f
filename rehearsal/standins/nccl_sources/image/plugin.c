/* The plugin that EFA's installer brings. */
struct standinNet {
  const char *name;
};
const struct standinNet ncclNetPlugin_v9 = {"AWS Libfabric"};
const char *const nccl_ofi_version = "aws-ofi-nccl of the image p4d.24xlarge";
