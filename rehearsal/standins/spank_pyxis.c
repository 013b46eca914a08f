/*
 * Stand-in of pyxis for tests and rehearsals: `srun --container-image=FILE.sqsh|[docker://]IMAGE` runs the task inside the
 * image, with the stand-in of enroot as its only helper.
 *
 * Like the real one (0.20 to 0.24; messages of 0.24.0): a SPANK plugin that Slurm loads from plugstack.conf, the same names of options, an
 * unknown option of plugstack.conf ends every srun, root makes a user's directory below runtime_path, a task whose image
 * cannot be had exits with 1 and prints enroot's log, a task begins in the image's working directory. Unlike it: root
 * unpacks the image and changes the task's root (the real one uses user namespaces, or squashfuse), once for each step and
 * node, below runtime_path instead of enroot's data; named containers are kept there; no entry points. The flags of a
 * container's name are those of args.c and pyxis_slurmstepd.c of 0.24.0. A container runs while a process has it as its
 * root. A task that joins one enters its mounts, and takes those of its variables that the task does not have.
 *
 * Build: gcc -shared -fPIC -o spank_pyxis.so spank_pyxis.c (headers: Debian's libslurm-dev)
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(pyxis, 1)

enum { IMAGE = 1, MOUNTS, WORKDIR, NAME, PLAIN };
enum { TEXT = 4096, PATHS = 512 };

static char runtime_path[PATHS / 2] = "/run/pyxis";
static char image[TEXT], mounts[TEXT], workdir[TEXT], name[TEXT], root[PATHS];
static const char *flag = "auto"; /* of --container-name=NAME:FLAG */
static int job_scope;
static pid_t joined; /* a process of the running container that the tasks join */
/* Why the tasks cannot start; they say it, since the step has no screen before. */
static char failure[2 * TEXT];

/* NAME[:FLAG]. The value after the first `:` is the flag, an empty one is "auto". */
static int keep_name(const char *argument)
{
	static const char *flags[] = { "auto", "create", "exec", "no_exec", NULL };
	const char *colon = strchr(argument, ':');
	const char *word = colon && colon[1] ? colon + 1 : "auto";
	int length = colon ? (int)(colon - argument) : (int)strlen(argument);
	int i;

	if (length == 0) {
		slurm_error("pyxis: --container-name: empty name");
		return -1;
	}
	for (i = 0; flags[i] && strcmp(flags[i], word); i++)
		;
	if (flags[i] == NULL) {
		slurm_error("pyxis: --container-name: flag must be \"auto\", \"create\", \"exec\" or \"no_exec\"");
		return -1;
	}
	flag = flags[i];
	snprintf(name, TEXT, "%.*s", length, argument);
	return 0;
}

static int keep(int which, const char *argument, int remote)
{
	static const char *words[] = { "", "image", "mounts", "workdir", "name" };
	char *place = which == IMAGE ? image : which == MOUNTS ? mounts : which == NAME ? name : workdir;

	(void)remote;
	if (which == PLAIN)
		return 0;
	if (argument == NULL || *argument == '\0') {
		slurm_error("pyxis: --container-%s: argument required", words[which]);
		return -1;
	}
	/* Slurm can call twice with the same value; that of a name is kept without its flag, as in the real one. */
	if (which != MOUNTS && *place != '\0' && strcmp(place, argument) != 0) {
		slurm_error("pyxis: --container-%s specified multiple times", words[which]);
		return -1;
	}
	if (which == NAME && *place == '\0')
		return keep_name(argument);
	snprintf(place, TEXT, "%s", argument);
	return 0;
}

static struct spank_option options[] = {
	{ "container-image", "FILE|[REGISTRY#]IMAGE[:TAG]", "[pyxis] the image to run in", 1, IMAGE, keep },
	{ "container-mounts", "SRC:DST[,SRC:DST...]", "[pyxis] directories of the node inside", 1, MOUNTS, keep },
	{ "container-workdir", "PATH", "[pyxis] working directory inside", 1, WORKDIR, keep },
	{ "container-name", "NAME[:FLAG]", "[pyxis] the container that later steps find under this name", 1, NAME, keep },
	{ "container-writable", NULL, "[pyxis] the container may be written to (always, here)", 0, PLAIN, keep },
	{ "container-mount-home", NULL, "[pyxis] the home directory inside (never, here)", 0, PLAIN, keep },
	{ "no-container-mount-home", NULL, "[pyxis] no home directory inside", 0, PLAIN, keep },
	SPANK_OPTIONS_TABLE_END
};

static const char *log_file(void)
{
	static char file[PATHS + 8];

	snprintf(file, sizeof(file), "%s.log", root);
	return file;
}

/* Runs a command to its end, its words go to the log; its exit code, or -1. */
static int run(char *const argv[])
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		int log = open(log_file(), O_WRONLY | O_CREAT | O_APPEND, 0600);

		dup2(log, 1);
		dup2(log, 2);
		execvp(argv[0], argv);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

int slurm_spank_init(spank_t spank, int ac, char **av)
{
	static const char *known[] = { "remap_root=", "execute_entrypoint=", "container_scope=", "sbatch_support=", "use_squashfuse=" };
	size_t j;

	for (int i = 0; i < ac; i++) {
		if (strncmp(av[i], "runtime_path=", 13) == 0) {
			snprintf(runtime_path, sizeof(runtime_path), "%s", av[i] + 13);
			continue;
		}
		if (strcmp(av[i], "container_scope=job") == 0)
			job_scope = 1;
		for (j = 0; j < sizeof(known) / sizeof(*known) && strncmp(av[i], known[j], strlen(known[j])); j++)
			;
		if (j == sizeof(known) / sizeof(*known)) {
			slurm_error("pyxis: unknown configuration option: %s", av[i]);
			return -1;
		}
	}
	for (int i = 0; spank_context() != S_CTX_SLURMD && options[i].name; i++)
		if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS)
			return -1;
	return 0;
}

/* A process whose root is the container, 0 if none is: then the container does not run. */
static pid_t process_of(const char *container)
{
	char link[PATHS], place[PATHS];
	pid_t found = 0;
	DIR *processes = opendir("/proc");
	struct dirent *one;

	while (found == 0 && processes && (one = readdir(processes))) {
		ssize_t size;

		snprintf(link, sizeof(link), "/proc/%.20s/root", one->d_name);
		size = readlink(link, place, sizeof(place) - 1);
		if (size > 0) {
			place[size] = '\0';
			if (strcmp(place, container) == 0)
				found = atoi(one->d_name);
		}
	}
	if (processes)
		closedir(processes);
	return found;
}

/* What the flag of a container's name says of this one; 1 if the image is needed, 0 if not or if the tasks fail. */
static int take_named(void)
{
	int exists = access(root, F_OK) == 0;
	pid_t process = exists ? process_of(root) : 0;

	if (strcmp(flag, "create") == 0 && exists)
		snprintf(failure, sizeof(failure), "error: \"create\" flag was passed to --container-name but the container already exists");
	else if (strcmp(flag, "exec") == 0 && process == 0)
		snprintf(failure, sizeof(failure), "error: \"exec\" flag was passed to --container-name but the container is not running");
	else if (!exists && image[0] == '\0')
		snprintf(failure, sizeof(failure), "error: a container with name \"%s\" does not exist, and --container-image is not set",
			 strrchr(root, '/') + 1);
	else if (strcmp(flag, "no_exec") != 0)
		joined = process;
	return !exists && failure[0] == '\0';
}

/* On the node, before there are tasks: the image becomes a directory. */
int slurm_spank_init_post_opt(spank_t spank, int ac, char **av)
{
	uint32_t job = 0, step = 0;
	uid_t user = 0;
	char base[PATHS], file[TEXT + PATHS];
	char *make[] = { "enroot", "create", "--name", root, file, NULL };

	(void)ac, (void)av;
	if (!spank_remote(spank) || (image[0] == '\0' && name[0] == '\0'))
		return 0;
	spank_get_item(spank, S_JOB_ID, &job);
	spank_get_item(spank, S_JOB_STEPID, &step);
	spank_get_item(spank, S_JOB_UID, &user);
	snprintf(base, sizeof(base), "%s/%u", runtime_path, user);
	if (mkdir(base, 0700) < 0 && access(base, F_OK) < 0) {
		slurm_error("pyxis: couldn't mkdir %s: %m", base);
		return -1;
	}
	snprintf(root, sizeof(root), "%.200s/%u.%u", base, job, step);
	if (name[0] != '\0') {
		if (job_scope)
			snprintf(root, sizeof(root), "%.200s/pyxis_%u_%.64s", base, job, name);
		else
			snprintf(root, sizeof(root), "%.200s/pyxis_%.64s", base, name);
		if (!take_named())
			return 0;
	}
	snprintf(file, sizeof(file), "%s", image);
	if (image[0] != '/' && image[0] != '.') {
		char uri[TEXT + 16];
		char *import[] = { "enroot", "import", "--output", file, uri, NULL };

		snprintf(uri, sizeof(uri), "%s%s", strstr(image, "://") ? "" : "docker://", image);
		snprintf(file, sizeof(file), "%s.sqsh", root);
		slurm_spank_log("pyxis: importing docker image: %s", image);
		if (run(import) != 0) {
			snprintf(failure, sizeof(failure), "failed to import docker image: %s", image);
			return 0;
		}
	}
	if (setenv("ENROOT_DATA_PATH", "/", 1) < 0 || run(make) != 0)
		snprintf(failure, sizeof(failure), "failed to create container filesystem for image: %s", image);
	return 0;
}

/* In a task, which has the user's screen. */
static int fail(void)
{
	char line[TEXT];
	FILE *lines = fopen(log_file(), "r");

	slurm_error("pyxis: %s", failure);
	if (strncmp(failure, "error: ", 7) == 0) { /* found before enroot ran */
		if (lines)
			fclose(lines);
		return -1;
	}
	slurm_error("pyxis: printing enroot log file:");
	while (lines && fgets(line, sizeof(line), lines)) {
		line[strcspn(line, "\n")] = '\0';
		slurm_error("pyxis:     %s", line);
	}
	if (lines)
		fclose(lines);
	return -1;
}

/* Where the image's /etc/rc, which enroot writes, begins. */
static void take_workdir(void)
{
	char file[PATHS + 16], line[TEXT];
	FILE *lines;

	snprintf(file, sizeof(file), "%s/etc/rc", root);
	lines = fopen(file, "r");
	while (lines && workdir[0] == '\0' && fgets(line, sizeof(line), lines))
		sscanf(line, "cd \"%4095[^\"]\"", workdir);
	if (lines)
		fclose(lines);
}

/* NAME=VALUE lines into the task's environment. */
static void take_environment(spank_t spank, const char *file)
{
	char line[TEXT], *value;
	FILE *lines = fopen(file, "r");

	while (lines && fgets(line, sizeof(line), lines)) {
		line[strcspn(line, "\n")] = '\0';
		value = strchr(line, '=');
		if (value) {
			*value++ = '\0';
			spank_setenv(spank, line, value, 1);
		}
	}
	if (lines)
		fclose(lines);
	unlink(file);
}

/* A task enters a running container. */
static int join(spank_t spank)
{
	char file[PATHS], *text = NULL, *value;
	size_t size = 0;
	int fd, task = 0;
	FILE *variables;

	spank_get_item(spank, S_TASK_ID, &task);
	if (task == 0 && mounts[0] != '\0')
		slurm_spank_log("pyxis: ignoring --container-mounts when attaching to a running container");
	snprintf(file, sizeof(file), "/proc/%d/ns/mnt", (int)joined);
	fd = open(file, O_RDONLY);
	if (fd < 0 || setns(fd, CLONE_NEWNS) < 0 || chroot(root) < 0 || chdir("/") < 0) {
		slurm_error("pyxis: couldn't join mount namespace: %m");
		return -1;
	}
	close(fd);
	snprintf(file, sizeof(file), "/proc/%d/environ", (int)joined);
	variables = fopen(file, "r");
	while (variables && getdelim(&text, &size, '\0', variables) > 0) {
		value = strchr(text, '=');
		if (value) {
			*value++ = '\0';
			spank_setenv(spank, text, value, 0);
		}
	}
	if (variables)
		fclose(variables);
	free(text);
	return 0;
}

/* In each task, still as root: its own mounts, then the image as its root. */
int slurm_spank_task_init_privileged(spank_t spank, int ac, char **av)
{
	/* enroot's hook of GPUs reads them; the real pyxis hands over most of the job's environment. */
	static const char *variables[] = { "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", NULL };
	char file[PATHS + 32], value[TEXT];
	char *argv[] = { "enroot", "prepare", root, mounts, file, NULL };

	(void)ac, (void)av;
	if (root[0] == '\0')
		return 0;
	if (failure[0] != '\0')
		return fail();
	take_workdir();
	if (joined > 0)
		return join(spank);
	snprintf(file, sizeof(file), "%s.environ.%d", root, (int)getpid());
	for (int i = 0; variables[i]; i++)
		if (spank_getenv(spank, variables[i], value, sizeof(value)) == ESPANK_SUCCESS)
			setenv(variables[i], value, 1);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || run(argv) != 0) {
		snprintf(failure, sizeof(failure), "container start failed with error code: 1");
		return fail();
	}
	take_environment(spank, file);
	if (chroot(root) < 0 || chdir("/") < 0) {
		slurm_error("pyxis: couldn't start container: %m");
		return -1;
	}
	return 0;
}

/* In each task as its user, after Slurm has gone to the job's directory. */
int slurm_spank_task_init(spank_t spank, int ac, char **av)
{
	(void)spank, (void)ac, (void)av;
	if (root[0] != '\0' && chdir(workdir[0] ? workdir : "/") < 0) {
		slurm_error("pyxis: couldn't chdir to %s: %m", workdir);
		return -1;
	}
	return 0;
}

int slurm_spank_exit(spank_t spank, int ac, char **av)
{
	char log[PATHS + 8];
	char *argv[] = { "rm", "-rf", "--one-file-system", root, log, NULL };

	(void)ac, (void)av;
	snprintf(log, sizeof(log), "%s", log_file());
	if (name[0] != '\0')
		argv[3] = log; /* a named container is kept */
	if (spank_remote(spank) && root[0] != '\0')
		run(argv);
	return 0;
}
