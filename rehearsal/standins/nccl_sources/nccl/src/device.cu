/* In place of the device code. The stand-in nvcc defines NVCC_TARGETS to the architectures it was asked for. */
const char ncclStandinTargets[] = "device code for " NVCC_TARGETS;
