// What Slipway's build asks of NCCL: its version, from a real shared library.
#include "nccl.h"

ncclResult_t ncclGetVersion(int *version) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
