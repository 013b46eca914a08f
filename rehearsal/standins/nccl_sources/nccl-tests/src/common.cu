/* Says which NCCL the program runs with, as NCCL does with NCCL_DEBUG=VERSION and louder; once a job. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int wanted(void) {
  const char *debug = getenv("NCCL_DEBUG"), *rank = getenv("PMIX_RANK");
  return debug != NULL && strcmp(debug, "NONE") != 0 && (rank == NULL || strcmp(rank, "0") == 0);
}

/* As NCCL's debug.cc: with a level above VERSION the lines go to NCCL_DEBUG_FILE, %h the host's name, %p the process. */
static int debugFile(char *path, size_t size) {
  const char *from = getenv("NCCL_DEBUG_FILE"), *debug = getenv("NCCL_DEBUG");
  size_t at = 0;
  char host[256] = "";
  if (from == NULL || *from == '\0' || strcmp(debug, "VERSION") == 0) return 0;
  gethostname(host, sizeof host - 1);
  host[strcspn(host, ".")] = '\0';
  for (; *from != '\0' && at + 1 < size; from++) {
    if (*from != '%') {
      path[at++] = *from;
      continue;
    }
    from++;
    if (*from == 'h') at += (size_t)snprintf(path + at, size - at, "%s", host);
    else if (*from == 'p') at += (size_t)snprintf(path + at, size - at, "%d", (int)getpid());
    else if (*from == '%') path[at++] = '%';
    if (*from == '\0' || at >= size) return 0;
  }
  path[at] = '\0';
  return 1;
}

__attribute__((constructor)) static void sayVersion(void) {
  int version = 0;
  FILE *out = stdout;
  char path[4096];
  if (!wanted() || ncclGetVersion(&version) != ncclSuccess) return;
  if (debugFile(path, sizeof path)) {
    FILE *file = fopen(path, "w");
    if (file != NULL) out = file;
  }
  fprintf(out, "NCCL version %d.%d.%d+standin\n", version / 10000, version / 100 % 100, version % 100);
  if (out != stdout) fclose(out);
  fflush(stdout);
}
