// A plugin as NCCL looks for one: a shared library with ncclNetPlugin_v* symbols, linked with libfabric.
#include <rdma/fabric.h>

extern "C" {
struct standinNet {
  const char *name;
  unsigned (*fabric)(void);
};
extern const standinNet ncclNetPlugin_v8, ncclNetPlugin_v9, ncclNetPlugin_v10;
const standinNet ncclNetPlugin_v8 = {"AWS Libfabric", fi_version};
const standinNet ncclNetPlugin_v9 = {"AWS Libfabric", fi_version};
const standinNet ncclNetPlugin_v10 = {"AWS Libfabric", fi_version};
extern const char *const nccl_ofi_version;
const char *const nccl_ofi_version = "aws-ofi-nccl " VERSION " " XML_DIR;
#ifdef PLATFORM_AWS
extern const char *const nccl_ofi_platforms[];
const char *const nccl_ofi_platforms[] = {"p4d.24xlarge", "p5.4xlarge", "p-series"};
#endif
}
