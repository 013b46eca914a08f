/*
 * The rehearsal's stand-in of nccl-tests: a real MPI collective over the hosts' network, one rank a GPU.
 *
 * It takes nccl-tests' flags, prints nccl-tests 2.19's text form and ends with its exit codes, so that the job script,
 * the parser and the judgement of the product meet what they meet on a cluster. Every figure is measured, every
 * `#wrong` is counted by checking each element. The device lines and the second line say what it is.
 * One source makes both programs: the collective is chosen by -DCOLLECTIVE=0 (all_reduce) or 1 (alltoall).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#ifndef COLLECTIVE
#define COLLECTIVE 0
#endif
#define ALL_REDUCE 0
#define ALL_TO_ALL 1
#define SHORTEST_NS 100000
#define LONGEST_NS 2000000
#define ASKED_NS 50000 /* Open MPI asks all its connections in less */

/* nccl-tests' exit codes */
enum { EXIT_NONE = 0, EXIT_INTERNAL = 1, EXIT_TIMEOUT = 4, EXIT_INVALID = 5, EXIT_USAGE = 6, EXIT_DATA = 7 };
enum { OUT_OF_PLACE = 0, IN_PLACE = 1 };
/* Average over the ranks: the values of nccl-tests' -a. */
enum { AVERAGE_RANK0 = 0, AVERAGE_MEAN = 1, AVERAGE_MIN = 2, AVERAGE_MAX = 3 };

static const char *const PROGRAM = COLLECTIVE == ALL_REDUCE ? "all_reduce_perf" : "alltoall_perf";
static const int VALUES = 7; /* inputs are 0..6: sums over any number of ranks below 2^24 / 6 are exact in a float */

struct options {
  size_t min_bytes, max_bytes, step_bytes;
  int step_factor, iterations, warmup, cycles, check, average, timeout_s, gpus, threads, aggregate;
  const char *output; /* -J */
};

static FILE *json; /* open in rank 0 with -J; like nccl-tests', it is whole only after a regular end */

struct world {
  int rank, ranks, local_rank;
  char host[256];
};

struct buffers {
  float *send, *receive;
};

struct outcome {
  double time_us, algbw, busbw;
  int64_t wrong; /* -1: not checked */
};

static char timeout_message[400];

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/*
 * Open MPI calls this while it waits (mpi_yield_when_idle). 32 ranks on a few CPUs that only yield spend the CPUs on asking;
 * a short sleep leaves them to the ranks that have something to do, so that the link is measured and not the scheduler.
 * The sleep doubles while nothing arrives: a rank that had something to do comes back later than one that only asked.
 */
int sched_yield(void) {
  static int64_t pause_ns = SHORTEST_NS, woke_ns;
  pause_ns = now_ns() - woke_ns > ASKED_NS ? SHORTEST_NS : pause_ns * 2 < LONGEST_NS ? pause_ns * 2 : LONGEST_NS;
  const struct timespec pause = {0, pause_ns};
  nanosleep(&pause, NULL);
  woke_ns = now_ns();
  return 0;
}

static void on_timeout(int signal_number) {
  (void)signal_number;
  ssize_t written = write(STDOUT_FILENO, timeout_message, strlen(timeout_message));
  (void)written;
  _exit(EXIT_TIMEOUT);
}

static void usage(FILE *out) {
  fprintf(out,
          "USAGE: %s \n"
          "\t[-t,--nthreads 1] [-g,--ngpus 1]\n"
          "\t[-b,--minbytes <size>] [-e,--maxbytes <size>] [-i,--stepbytes <size>] [-f,--stepfactor <factor>]\n"
          "\t[-n,--iters <count>] [-m,--agg_iters <count>] [-w,--warmup_iters <count>] [-N,--run_cycles <count>]\n"
          "\t[-c,--check <count>] [-o,--op sum] [-d,--datatype float] [-a,--average <0/1/2/3>]\n"
          "\t[-T,--timeout <seconds>] [-h,--help]\n"
          "\t[-J,--output_file <file> write output to filepath, if accessible.]\n"
          "\tAccepted, without meaning here: -p -z -y -G -R -r\n",
          PROGRAM);
}

/* "16M" -> 16777216; the whole text must be a size, else -1. */
static double parse_size(const char *text) {
  char *end = NULL;
  double value = strtod(text, &end);
  if (end == text || value < 0) return -1;
  switch (*end) {
    case 'G': case 'g': value *= 1024; /* fall through */
    case 'M': case 'm': value *= 1024; /* fall through */
    case 'K': case 'k': value *= 1024; end++; break;
    default: break;
  }
  return *end == '\0' ? value : -1;
}

static int read_size(const char *text, size_t *size) {
  double value = parse_size(text);
  if (value < 0) {
    fprintf(stderr, "%s: '%s' is no size: a number with K, M or G is expected\n", PROGRAM, text);
    return EXIT_USAGE;
  }
  *size = (size_t)value;
  return EXIT_NONE;
}

static int read_count(const char *text, int minimum, int *count) {
  char *end = NULL;
  long value = strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < minimum || value > INT_MAX) {
    fprintf(stderr, "%s: '%s' is no whole number of at least %d\n", PROGRAM, text, minimum);
    return EXIT_USAGE;
  }
  *count = (int)value;
  return EXIT_NONE;
}

static int require_word(char flag, const char *given, const char *offered) {
  if (strcmp(given, offered) == 0) return EXIT_NONE;
  fprintf(stderr, "%s: -%c %s: the stand-in offers '%s' only\n", PROGRAM, flag, given, offered);
  return EXIT_INVALID;
}

static int read_option(int flag, const char *value, struct options *o) {
  switch (flag) {
    case 'b': return read_size(value, &o->min_bytes);
    case 'e': return read_size(value, &o->max_bytes);
    case 'i': return read_size(value, &o->step_bytes);
    case 'f': return read_count(value, 1, &o->step_factor);
    case 'n': return read_count(value, 1, &o->iterations);
    case 'm': return read_count(value, 1, &o->aggregate);
    case 'w': return read_count(value, 0, &o->warmup);
    case 'N': return read_count(value, 0, &o->cycles);
    case 'c': return read_count(value, 0, &o->check);
    case 'a': return read_count(value, 0, &o->average);
    case 'T': return read_count(value, 0, &o->timeout_s);
    case 'g': return read_count(value, 1, &o->gpus);
    case 't': return read_count(value, 1, &o->threads);
    case 'J': o->output = value; return EXIT_NONE;
    case 'o': return require_word('o', value, "sum");
    case 'd': return require_word('d', value, "float");
    case 'p': case 'z': case 'y': case 'G': case 'R': case 'r': return EXIT_NONE;
    default: return EXIT_USAGE;
  }
}

static const struct option LONG_OPTIONS[] = {
    {"nthreads", 1, 0, 't'},   {"ngpus", 1, 0, 'g'},        {"minbytes", 1, 0, 'b'},     {"maxbytes", 1, 0, 'e'},
    {"stepbytes", 1, 0, 'i'},  {"stepfactor", 1, 0, 'f'},   {"iters", 1, 0, 'n'},        {"agg_iters", 1, 0, 'm'},
    {"warmup_iters", 1, 0, 'w'}, {"run_cycles", 1, 0, 'N'}, {"parallel_init", 1, 0, 'p'}, {"check", 1, 0, 'c'},
    {"op", 1, 0, 'o'},         {"datatype", 1, 0, 'd'},     {"root", 1, 0, 'r'},         {"blocking", 1, 0, 'z'},
    {"stream_null", 1, 0, 'y'}, {"timeout", 1, 0, 'T'},     {"cudagraph", 1, 0, 'G'},    {"average", 1, 0, 'a'},
    {"local_register", 1, 0, 'R'}, {"output_file", 1, 0, 'J'}, {"help", 0, 0, 'h'},     {0, 0, 0, 0}};

static int read_options(int argc, char **argv, const struct world *w, struct options *o) {
  int flag;
  opterr = w->rank == 0;
  while ((flag = getopt_long(argc, argv, "t:g:b:e:i:f:n:m:w:N:p:c:o:d:r:z:y:T:G:a:R:J:h", LONG_OPTIONS, NULL)) != -1) {
    if (flag == 'h' || flag == '?') {
      if (w->rank == 0) usage(stdout);
      return flag == 'h' ? -1 : EXIT_USAGE;
    }
    int rc = read_option(flag, optarg, o);
    if (rc != EXIT_NONE) return rc;
  }
  if (o->min_bytes > o->max_bytes) {
    if (w->rank == 0) printf("invalid sizes: minbytes %zu is above maxbytes %zu\n", o->min_bytes, o->max_bytes);
    return EXIT_USAGE;
  }
  if (o->step_factor <= 1 && o->step_bytes == 0) o->step_bytes = 1048576;
  return EXIT_NONE;
}

static int devices_here(void) {
  glob_t found;
  int count = glob("/dev/nvidia[0-9]*", 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
  globfree(&found);
  return count;
}

/* nccl-tests' own complaint: more GPUs asked for than the host has. One rank is one GPU. */
static int check_devices(const struct world *w, const struct options *o) {
  int wanted = (w->local_rank + 1) * o->gpus * o->threads, present = devices_here(), worst = 0;
  int bad = wanted > present || o->gpus * o->threads != 1;
  MPI_Allreduce(&bad, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (!worst) return EXIT_NONE;
  if (bad) {
    if (wanted > present)
      printf("Invalid number of GPUs: %d requested but only %d were found.\n"
             "Please check the number of processes and GPUs per process.\n", wanted, present);
    else
      printf("The rehearsal's stand-in runs one GPU a rank: use -g 1 -t 1 and as many tasks as GPUs.\n");
    printf(" .. %s pid %d: Test failure nccl_tests.c:%d\n", w->host, (int)getpid(), __LINE__);
  }
  return EXIT_INVALID;
}

static void write_text(const char *text) {
  fputc('"', json);
  for (; *text != '\0'; text++) {
    if (*text == '\n') fputs("\\n", json);
    else if (*text == '\t') fputs("\\t", json);
    else if ((unsigned char)*text >= 0x7f || (unsigned char)*text <= 0x1f) break; /* nccl-tests stops there too */
    else {
      if (strchr("\"\\/", *text) != NULL) fputc('\\', json);
      fputc(*text, json);
    }
  }
  fputc('"', json);
}

/* Arguments, the whole environment and the sizes, as jsonOutputInit and writeDeviceReport of nccl-tests 2.19 do. */
static void begin_json(const struct world *w, const struct options *o, char **argv) {
  const char *end = o->output == NULL ? NULL : strrchr(o->output, '.');
  if (w->rank != 0 || end == NULL || strcasecmp(end, ".json") != 0) return;
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s", o->output);
  json = fopen(path, "wx");
  for (int number = 0; json == NULL && errno == EEXIST; number++) {
    snprintf(path, sizeof path, "%.4000s.%d", o->output, number);
    json = fopen(path, "wx");
  }
  if (json == NULL) {
    printf("# skipping json output; %s not accessible\n", path);
    return;
  }
  printf("# Writing JSON output to %s\n", path);
  fputs("{\"version\":1,\"args\":[", json);
  for (char **arg = argv; *arg != NULL; arg++) {
    if (arg != argv) fputc(',', json);
    write_text(*arg);
  }
  fputs("],\"env\":[", json);
  for (char **entry = environ; *entry != NULL; entry++) {
    if (entry != environ) fputc(',', json);
    write_text(*entry);
  }
  int factor = o->step_factor > 1;
  fprintf(json, "],\"nccl_version\":0,\"config\":{\"minimum_bytes\":%zu,\"maximum_bytes\":%zu,\"%s\":%zu,\"devices\":[]},"
          "\"results\":[", o->min_bytes, o->max_bytes, factor ? "step_factor" : "step_bytes",
          factor ? (size_t)o->step_factor : o->step_bytes);
}

static void write_side(const char *name, const struct outcome *side) {
  fprintf(json, ",\"%s\":{\"time\":%f,\"alg_bw\":%f,\"bus_bw\":%f,\"nwrong\":", name, side->time_us, side->algbw,
          side->busbw);
  if (side->wrong < 0) fputs("null}", json);
  else fprintf(json, "%f}", (double)side->wrong);
}

static void print_header(const struct options *o) {
  int factor = o->step_factor > 1;
  printf("# nccl-tests version 2.19.6 nccl-headers=0 nccl-library=0\n");
  printf("# Stand-in of the rehearsal: MPI over the hosts' network, no NCCL, no GPU; the figures are measured\n");
  printf("# Collective test starting: %s\n", PROGRAM);
  printf("# nThread 1 nGpus 1 minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d agg iters: %d "
         "validation: %d graph: 0 unalign: 0\n#\n# Using devices\n",
         o->min_bytes, o->max_bytes, factor ? (size_t)o->step_factor : o->step_bytes, factor ? "factor" : "bytes",
         o->warmup, o->iterations, o->aggregate, o->check);
}

static void print_devices(const struct world *w) {
  char line[400], *all = NULL;
  memset(line, 0, sizeof line);
  snprintf(line, sizeof line, "#  Rank %2d Group %2d Pid %6d on %10s device %2d [0000:00:%02x] MPI stand-in, no GPU\n",
           w->rank, 0, (int)getpid(), w->host, w->local_rank, w->local_rank);
  if (w->rank == 0) all = malloc(sizeof line * (size_t)w->ranks);
  MPI_Gather(line, sizeof line, MPI_CHAR, all, sizeof line, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (w->rank == 0) {
    for (int i = 0; i < w->ranks; i++) fputs(all + sizeof line * (size_t)i, stdout);
    free(all);
  }
}

static void print_columns(void) {
  printf("#\n#                                                              out-of-place"
         "                       in-place          \n"
         "#       size         count      type   redop    root     time   algbw   busbw  #wrong "
         "    time   algbw   busbw  #wrong \n"
         "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)         "
         "    (us)  (GB/s)  (GB/s)         \n");
  fflush(stdout);
}

/* A number in `width` characters, with as many decimals as still fit. */
static void print_number(double value, int width) {
  int digits = 0;
  for (double bound = 1; value >= bound; bound *= 10) digits++;
  if (digits < width - 2) printf("  %*.2f", width, value);
  else if (digits < width - 1) printf("  %*.1f", width, value);
  else if (digits <= width) printf("  %*.0f", width, value);
  else printf("  %*.1e", width, value);
}

static void print_side(const struct outcome *side) {
  print_number(side->time_us, 7);
  print_number(side->algbw, 6);
  print_number(side->busbw, 6);
  if (side->wrong < 0) printf("     N/A");
  else if (side->wrong > 99999) printf("  %6g", (double)side->wrong);
  else printf("  %6" PRId64, side->wrong);
  fflush(stdout);
}

static void collective(const struct buffers *b, size_t count, int in_place) {
  const void *source = in_place ? MPI_IN_PLACE : b->send;
#if COLLECTIVE == ALL_REDUCE
  MPI_Allreduce(source, b->receive, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
#else
  MPI_Alltoall(source, (int)count, MPI_FLOAT, b->receive, (int)count, MPI_FLOAT, MPI_COMM_WORLD);
#endif
}

static float input(int rank, size_t index) { return (float)((index + (size_t)rank) % (size_t)VALUES); }

static void fill(const struct world *w, const struct buffers *b, size_t elements, int in_place) {
  float *target = in_place ? b->receive : b->send;
  for (size_t i = 0; i < elements; i++) target[i] = input(w->rank, i);
  if (!in_place) memset(b->receive, 0xff, elements * sizeof(float));
}

static int64_t count_wrong(const struct world *w, const struct buffers *b, size_t count) {
  int64_t wrong = 0, total = 0;
#if COLLECTIVE == ALL_REDUCE
  float expected[16];
  for (int i = 0; i < VALUES; i++) {
    expected[i] = 0;
    for (int rank = 0; rank < w->ranks; rank++) expected[i] += input(rank, (size_t)i);
  }
  for (size_t i = 0; i < count; i++) wrong += b->receive[i] != expected[i % (size_t)VALUES];
#else
  for (int rank = 0; rank < w->ranks; rank++)
    for (size_t i = 0; i < count; i++)
      wrong += b->receive[(size_t)rank * count + i] != input(rank, (size_t)w->rank * count + i);
#endif
  MPI_Allreduce(&wrong, &total, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  return total;
}

static double average_us(const struct world *w, double us, int average) {
  double result = us;
  MPI_Op op = average == AVERAGE_MIN ? MPI_MIN : average == AVERAGE_MAX ? MPI_MAX : MPI_SUM;
  if (average == AVERAGE_RANK0) {
    MPI_Bcast(&result, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return result;
  }
  MPI_Allreduce(&us, &result, 1, MPI_DOUBLE, op, MPI_COMM_WORLD);
  return average == AVERAGE_MEAN ? result / w->ranks : result;
}

static struct outcome measure(const struct world *w, const struct options *o, const struct buffers *b, size_t bytes,
                              int in_place) {
  size_t ranks = (size_t)w->ranks;
  size_t count = COLLECTIVE == ALL_REDUCE ? bytes / sizeof(float) : bytes / sizeof(float) / ranks;
  size_t elements = COLLECTIVE == ALL_REDUCE ? count : count * ranks;
  double factor = (COLLECTIVE == ALL_REDUCE ? 2.0 : 1.0) * (w->ranks - 1) / w->ranks;
  int runs = o->iterations * o->aggregate;
  struct outcome out = {0, 0, 0, -1};
  fill(w, b, elements, in_place);
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int i = 0; i < runs; i++) collective(b, count, in_place);
  out.time_us = average_us(w, (MPI_Wtime() - start) * 1e6 / runs, o->average);
  out.algbw = out.time_us > 0 ? (double)(elements * sizeof(float)) / out.time_us / 1e3 : 0;
  out.busbw = out.algbw * factor;
  if (o->check > 0 && !(COLLECTIVE == ALL_TO_ALL && in_place)) { /* as nccl-tests: no check of an in-place alltoall */
    out.wrong = 0;
    for (int i = 0; i < o->check; i++) {
      fill(w, b, elements, in_place);
      collective(b, count, in_place);
      out.wrong += count_wrong(w, b, count);
    }
  }
  return out;
}

static void print_lead(const struct world *w, size_t bytes, int first) {
  size_t ranks = (size_t)w->ranks;
  size_t count = COLLECTIVE == ALL_REDUCE ? bytes / sizeof(float) : bytes / sizeof(float) / ranks;
  size_t size = (COLLECTIVE == ALL_REDUCE ? count : count * ranks) * sizeof(float);
  printf("%12zu  %12zu  %8s  %6s  %6d", size, count, "float", COLLECTIVE == ALL_REDUCE ? "sum" : "none", -1);
  if (json != NULL)
    fprintf(json, "%s{\"size\":%zu,\"count\":%zu,\"type\":\"float\",\"redop\":\"%s\",\"root\":\"    -1\"",
            first ? "" : ",", size, count, COLLECTIVE == ALL_REDUCE ? "sum" : "none");
}

struct totals {
  double busbw;
  int64_t wrong;
  int sides;
};

static void add(struct totals *t, const struct outcome *side) {
  t->busbw += side->busbw;
  t->sides++;
  if (side->wrong > 0) t->wrong += side->wrong;
}

static void run_size(const struct world *w, const struct options *o, const struct buffers *b, size_t bytes,
                     struct totals *totals) {
  if (w->rank == 0) print_lead(w, bytes, totals->sides == 0);
  for (int side = OUT_OF_PLACE; side <= IN_PLACE; side++) {
    alarm((unsigned)o->timeout_s);
    struct outcome out = measure(w, o, b, bytes, side);
    add(totals, &out);
    if (w->rank == 0) print_side(&out);
    if (json != NULL) write_side(side == OUT_OF_PLACE ? "out_of_place" : "in_place", &out);
  }
  alarm(0);
  if (w->rank == 0) {
    printf("\n");
    fflush(stdout);
  }
  if (json != NULL) fputc('}', json);
}

static size_t next_size(const struct options *o, size_t bytes) {
  if (o->step_factor <= 1) return bytes + o->step_bytes;
  return bytes == 0 ? 1 : bytes * (size_t)o->step_factor;
}

static int print_footer(const struct world *w, const struct totals *t) {
  const char *floor_text = getenv("NCCL_TESTS_MIN_BW");
  double average = t->sides > 0 ? t->busbw / t->sides : 0;
  int slow = floor_text != NULL && average < atof(floor_text);
  if (w->rank == 0)
    printf("# Out of bounds values : %" PRId64 " %s\n# Avg bus bandwidth    : %g %s\n#\n"
           "# Collective test concluded: %s\n#\n\n",
           t->wrong, t->wrong ? "FAILED" : "OK", average, floor_text == NULL ? "" : slow ? "FAILED" : "OK", PROGRAM);
  if (json != NULL) {
    fprintf(json, "],\"out_of_bounds\":{\"count\":%" PRId64 ",\"okay\":\"%s\"},\"average_bus_bandwidth\":{\"bandwidth\":%f,"
            "\"okay\":\"%s\"},\"errors\":[\"\"]}", t->wrong, t->wrong ? "false" : "true", average,
            floor_text == NULL ? "unchecked" : slow ? "false" : "true");
    fclose(json);
    json = NULL;
  }
  return t->wrong || slow ? EXIT_DATA : EXIT_NONE;
}

static int run(const struct world *w, const struct options *o) {
  struct totals totals = {0, 0, 0};
  size_t room = o->max_bytes > 0 ? o->max_bytes : sizeof(float);
  struct buffers b = {malloc(room), malloc(room)};
  if (b.send == NULL || b.receive == NULL) {
    printf("%s: Test failure: no memory for two buffers of %zu bytes\n", w->host, room);
    return EXIT_INTERNAL;
  }
  struct options warmup = *o;
  warmup.iterations = o->warmup;
  warmup.aggregate = 1;
  warmup.check = 0;
  alarm((unsigned)o->timeout_s);
  if (o->warmup > 0) measure(w, &warmup, &b, o->max_bytes, OUT_OF_PLACE);
  for (int cycle = 0; o->cycles == 0 || cycle < o->cycles; cycle++)
    for (size_t bytes = o->min_bytes; bytes <= o->max_bytes; bytes = next_size(o, bytes))
      run_size(w, o, &b, bytes, &totals);
  int rc = print_footer(w, &totals);
  free(b.send);
  free(b.receive);
  return rc;
}

static void find_place(struct world *w) {
  MPI_Comm here;
  MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &w->ranks);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, w->rank, MPI_INFO_NULL, &here);
  MPI_Comm_rank(here, &w->local_rank);
  MPI_Comm_free(&here);
  gethostname(w->host, sizeof w->host - 1);
}

int main(int argc, char **argv) {
  struct options o = {.min_bytes = 33554432, .max_bytes = 33554432, .step_bytes = 0, .step_factor = 1,
                      .iterations = 20, .warmup = 1, .cycles = 1, .check = 1, .average = AVERAGE_MEAN,
                      .timeout_s = 0, .gpus = 1, .threads = 1, .aggregate = 1};
  struct world w;
  memset(&w, 0, sizeof w);
  MPI_Init(&argc, &argv);
  find_place(&w);
  int rc = read_options(argc, argv, &w, &o);
  if (rc == EXIT_NONE) {
    snprintf(timeout_message, sizeof timeout_message, "%s: Test timeout (%ds) nccl_tests.c:%d\n", w.host, o.timeout_s,
             __LINE__);
    signal(SIGALRM, on_timeout);
    begin_json(&w, &o, argv);
    if (w.rank == 0) print_header(&o);
    rc = check_devices(&w, &o);
  }
  if (rc == EXIT_NONE) {
    print_devices(&w);
    if (w.rank == 0) print_columns();
    rc = run(&w, &o);
  }
  MPI_Finalize();
  return rc < 0 ? EXIT_NONE : rc;
}
