/*
 * Stand-in of pyxis for tests and rehearsals: `srun --container-image=FILE.sqsh|[docker://]IMAGE` runs the task inside the
 * image, with the stand-in of enroot as its only helper.
 *
 * Like the real one (0.20 to 0.24; its options were run next to those of 0.20.0 and 0.24.0; messages of 0.24.0): a SPANK
 * plugin that Slurm loads from plugstack.conf, the same names of options, an unknown option of plugstack.conf ends every
 * srun, root makes a user's directory below runtime_path, a task whose image cannot be had exits with 1 and prints enroot's
 * log, a task begins in the image's working directory. Unlike it: root unpacks the image and changes the task's root (the
 * real one uses user namespaces, or squashfuse), once for each step and node, below runtime_path instead of enroot's data;
 * named containers are kept there; each task finds a fault for itself; no entry points, --container-save,
 * --container-unshare, PYXIS_CONTAINER_ variables. A container runs while a process has it as its root. A task that joins
 * one enters its mounts, and takes those of its variables that the task does not have.
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

enum { IMAGE = 1, MOUNTS, WORKDIR, NAME, ENV, HOME, NO_HOME, READONLY, WRITABLE, PLAIN };
enum { TEXT = 4096, PATHS = 512 };

static char runtime_path[PATHS / 2] = "/run/pyxis";
static char image[TEXT], mounts[TEXT], workdir[TEXT], name[TEXT], root[PATHS];
static char variables[TEXT] = ","; /* of --container-env, as ",NAME,NAME," */
static int mount_home, readonly;
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

/* SRC[:DST[:FLAG+FLAG]], appended to mounts as SRC:DST:FLAGS. */
static int add_mount(const char *entry)
{
	char text[TEXT], *rest = text, *source, *target, *flags;
	size_t used = strlen(mounts);

	snprintf(text, TEXT, "%s", entry);
	source = strsep(&rest, ":");
	target = rest ? strsep(&rest, ":") : source;
	flags = rest ? rest : "";
	if (*source == '\0' || *target == '\0') {
		slurm_error("pyxis: --container-mounts: invalid format: %s", entry);
		return -1;
	}
	if (strspn(source, "./") == 0 && strcmp(source, "tmpfs") != 0 && strcmp(source, "umount") != 0)
		slurm_error("pyxis: mount source must be a relative path, an absolute path, \"tmpfs\" or \"umount\"");
	else if (strspn(target, "./") == 0)
		slurm_error("pyxis: mount target must be a relative path or an absolute path");
	else {
		snprintf(mounts + used, TEXT - used, "%s%s:%s:%s", used ? "," : "", source, target, flags);
		return 0;
	}
	slurm_error("pyxis: could not add mount entry: %s:%s", source, target);
	return -1;
}

/* A list with commas: mounts, or the names of variables. */
static int keep_list(int which, const char *argument)
{
	static char before[TEXT];
	char text[TEXT], *rest = text, *entry;

	/* Slurm can call twice with the same value. */
	if (which == MOUNTS && strcmp(argument, before) == 0)
		return 0;
	if (which == MOUNTS)
		snprintf(before, TEXT, "%s", argument);
	snprintf(text, TEXT, "%s", argument);
	while ((entry = strsep(&rest, ","))) {
		if (which == MOUNTS && add_mount(entry) < 0)
			return -1;
		if (which == ENV && *entry == '\0') {
			slurm_error("pyxis: --container-env: invalid format: %s", argument);
			return -1;
		}
		if (which == ENV)
			snprintf(variables + strlen(variables), TEXT - strlen(variables), "%s,", entry);
	}
	return 0;
}

static int keep(int which, const char *argument, int remote)
{
	static const char *words[] = { "", "image", "mounts", "workdir", "name", "env" };
	char *place = which == IMAGE ? image : which == NAME ? name : workdir;

	(void)remote;
	if (which == HOME || which == NO_HOME)
		mount_home = which == HOME;
	if (which == READONLY || which == WRITABLE)
		readonly = which == READONLY;
	if (which > ENV)
		return 0;
	if (argument == NULL || *argument == '\0') {
		slurm_error("pyxis: --container-%s: argument required", words[which]);
		return -1;
	}
	if (which == MOUNTS || which == ENV)
		return keep_list(which, argument);
	/* Slurm can call twice with the same value; that of a name is kept without its flag, as in the real one. */
	if (*place != '\0' && strcmp(place, argument) != 0) {
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
	{ "container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]", "[pyxis] directories of the node inside", 1, MOUNTS, keep },
	{ "container-workdir", "PATH", "[pyxis] working directory inside", 1, WORKDIR, keep },
	{ "container-name", "NAME[:FLAG]", "[pyxis] the container that later steps find under this name", 1, NAME, keep },
	{ "container-env", "NAME[,NAME...]", "[pyxis] variables whose value is the job's, not the image's", 1, ENV, keep },
	{ "container-writable", NULL, "[pyxis] the container may be written to", 0, WRITABLE, keep },
	{ "container-readonly", NULL, "[pyxis] the container may not be written to", 0, READONLY, keep },
	{ "container-mount-home", NULL, "[pyxis] the home directory inside", 0, HOME, keep },
	{ "no-container-mount-home", NULL, "[pyxis] no home directory inside", 0, NO_HOME, keep },
	{ "container-entrypoint", NULL, "[pyxis] the image's entry point (none is run, here)", 0, PLAIN, keep },
	{ "no-container-entrypoint", NULL, "[pyxis] no entry point", 0, PLAIN, keep },
	{ "container-remap-root", NULL, "[pyxis] root inside (the job's user, here)", 0, PLAIN, keep },
	{ "no-container-remap-root", NULL, "[pyxis] the job's user inside", 0, PLAIN, keep },
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

/* An option without an image does nothing; 0.24 names each, on srun's screen. */
static void say_ignored(void)
{
	if (mounts[0] != '\0')
		slurm_error("pyxis: ignoring --container-mounts because neither --container-image nor --container-name is set");
	if (workdir[0] != '\0')
		slurm_error("pyxis: ignoring --container-workdir because neither --container-image nor --container-name is set");
}

/* sbatch --container-image: the script of the job, which is in slurmd's directory, is mounted too. */
static void add_script(spank_t spank, uint32_t step)
{
	char **arguments = NULL;
	int count = 0;
	size_t used = strlen(mounts);

	if (step == SLURM_BATCH_SCRIPT && spank_get_item(spank, S_JOB_ARGV, &count, &arguments) == ESPANK_SUCCESS && count > 0)
		snprintf(mounts + used, TEXT - used, "%s%s:%s:ro", used ? "," : "", arguments[0], arguments[0]);
}

/* On the node, before there are tasks: the image becomes a directory. */
int slurm_spank_init_post_opt(spank_t spank, int ac, char **av)
{
	uint32_t job = 0, step = 0;
	uid_t user = 0;
	char base[PATHS], file[TEXT + PATHS];
	char *make[] = { "enroot", "create", "--name", root, file, NULL };

	(void)ac, (void)av;
	if (image[0] == '\0' && name[0] == '\0') {
		if (!spank_remote(spank))
			say_ignored();
		return 0;
	}
	if (!spank_remote(spank))
		return 0;
	spank_get_item(spank, S_JOB_ID, &job);
	spank_get_item(spank, S_JOB_STEPID, &step);
	spank_get_item(spank, S_JOB_UID, &user);
	add_script(spank, step);
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
	if (image[0] == '.' && spank_getenv(spank, "PWD", base, sizeof(base)) == ESPANK_SUCCESS)
		snprintf(file, sizeof(file), "%s/%s", base, image);
	else
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

/* Whether --container-env names it: the job's value stays. */
static int is_kept(const char *variable)
{
	char wanted[PATHS];

	snprintf(wanted, sizeof(wanted), ",%.500s,", variable);
	return strstr(variables, wanted) != NULL;
}

/* NAME=VALUE lines into the task's environment; the job's language does not reach a container. */
static void take_environment(spank_t spank, const char *file)
{
	static const char *language[] = { "LANG", "LANGUAGE", "LC_ALL", NULL };
	char line[TEXT], *value;
	FILE *lines = fopen(file, "r");

	for (int i = 0; language[i]; i++)
		if (!is_kept(language[i]))
			spank_unsetenv(spank, language[i]);
	while (lines && fgets(line, sizeof(line), lines)) {
		line[strcspn(line, "\n")] = '\0';
		value = strchr(line, '=');
		if (value) {
			*value++ = '\0';
			spank_setenv(spank, line, value, !is_kept(line));
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

/* The first of the mounts whose source this node lacks, as 0.24 says it; NULL if there is none. */
static const char *missing_source(void)
{
	static char text[TEXT];
	char *rest = text, *entry;

	snprintf(text, TEXT, "%s", mounts);
	while ((entry = strsep(&rest, ","))) {
		entry[strcspn(entry, ":")] = '\0';
		if (entry[0] == '/' && access(entry, F_OK) < 0)
			return entry;
	}
	return NULL;
}

/* The task's own mounts; NULL if they are made, else what failed. */
static const char *make_mounts(char *const prepare[])
{
	static char text[TEXT + PATHS];
	const char *missing = missing_source();

	if (missing) {
		snprintf(text, sizeof(text), "--container-mounts: source path does not exist: %s", missing);
		return text;
	}
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount(root, root, NULL, MS_BIND, NULL) < 0 || run(prepare) != 0 ||
	    (readonly && mount(NULL, root, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0))
		return "container start failed with error code: 1";
	return NULL;
}

static void add_home(spank_t spank)
{
	char home[PATHS];
	size_t used = strlen(mounts);

	if (mount_home && spank_getenv(spank, "HOME", home, sizeof(home)) == ESPANK_SUCCESS)
		snprintf(mounts + used, TEXT - used, "%s%s:%s:", used ? "," : "", home, home);
}

/* In each task, still as root: its own mounts, then the image as its root. */
int slurm_spank_task_init_privileged(spank_t spank, int ac, char **av)
{
	/* enroot's hook of GPUs reads them; the real pyxis hands over most of the job's environment. */
	static const char *handed[] = { "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", NULL };
	char file[PATHS + 32], value[TEXT];
	const char *fault;
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
	for (int i = 0; handed[i]; i++)
		if (spank_getenv(spank, handed[i], value, sizeof(value)) == ESPANK_SUCCESS)
			setenv(handed[i], value, 1);
	add_home(spank);
	fault = make_mounts(argv);
	if (fault) {
		snprintf(failure, sizeof(failure), "%s", fault);
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
