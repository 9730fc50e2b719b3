/* A libnvidia-ml.so.1 without a GPU: answers pynvml from the state file that
 * $HEADWAY_NVML_STUB_STATE names, read anew whenever it was replaced. stub.py
 * writes the file; one "key value" on a line:
 *
 *   init_error 18              nvmlInit fails with this code
 *   error 999                  every call on a device fails
 *   hang 1                     every call waits until this line is gone
 *   limits 1                   what the calls of driver r615 for memory limits do: 0 there are none
 *                              (an older driver), 1 they work, 2 setting says so and does nothing;
 *                              else setting answers this code. A limit is a file in PATH.limits
 *   limit_granule 2097152      to so many bytes limits are rounded up; 1 where nothing is said
 *   processes 0                no GPU tells who is on it
 *   memory_v2 0                no nvmlDeviceGetMemoryInfo_v2 (an old driver)
 *   gpu / slice                starts a GPU, or a MIG slice of the GPU before it
 *     uuid, name, total, used, reserved, util, temp, power_mw, pcie_rx, pcie_tx,
 *     nvlink_rx, nvlink_tx, pcie_gen, pcie_width, pcie_gen_max, pcie_width_max,
 *     nvlinks, nvlink_version, cpu_mask, sm, tensor, dram, clock, clock_max,
 *     clock_limits, mig, error   -1 where the GPU does not offer it
 *     process PID BYTES        BYTES -1 where the driver does not say
 *     xid CODE                 every one since the first; a set gets those of after its registration
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
#define MAX_GPUS 256
#define MAX_PROCESSES 1024
#define MAX_XIDS 64

typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; } Process;
typedef struct {
    char uuid[96], name[96];
    long long total, used, reserved, util, temp, power_mw, pcie_rx, pcie_tx, nvlink_rx, nvlink_tx;
    long long pcie_gen, pcie_width, pcie_gen_max, pcie_width_max, nvlinks, nvlink_version;
    long long cpu_mask, sm, tensor, dram, clock, clock_max, clock_limits, mig, error;
    int parent; /* -1: a GPU; else the GPU this is a slice of */
    unsigned n_processes;
    Process processes[MAX_PROCESSES];
    unsigned n_xids, xids[MAX_XIDS];
} Gpu;

static struct { long long init_error, error, hang, limits, limit_granule, memory_v2, processes; int n; Gpu gpu[MAX_GPUS]; } S;
static struct stat seen;
static char seen_path[4096];
static int started;

static void add_gpu(int parent) {
    Gpu *g = &S.gpu[S.n++];
    memset(g, 0, sizeof *g);
    g->parent = parent;
    g->util = g->temp = g->power_mw = g->pcie_rx = g->pcie_tx = g->nvlink_rx = g->nvlink_tx = -1;
    g->pcie_gen = g->pcie_width = g->pcie_gen_max = g->pcie_width_max = -1;
    g->nvlinks = g->nvlink_version = g->cpu_mask = g->mig = -1;
    g->sm = g->tensor = g->dram = g->clock = g->clock_max = g->clock_limits = -1;
}

static void set(const char *key, const char *value) {
    static int last_gpu;
    long long n = atoll(value);
    if (!strcmp(key, "gpu")) { last_gpu = S.n; add_gpu(-1); return; }
    if (!strcmp(key, "slice")) { add_gpu(last_gpu); return; }
    Gpu *g = S.n ? &S.gpu[S.n - 1] : NULL;
    if (!strcmp(key, "init_error")) S.init_error = n;
    else if (!strcmp(key, "hang")) S.hang = n;
    else if (!strcmp(key, "processes")) S.processes = n;
    else if (!strcmp(key, "limits")) S.limits = n;
    else if (!strcmp(key, "limit_granule")) S.limit_granule = n;
    else if (!strcmp(key, "memory_v2")) S.memory_v2 = n;
    else if (!strcmp(key, "error")) { if (g) g->error = n; else S.error = n; }
    else if (!g) return;
    else if (!strcmp(key, "uuid")) snprintf(g->uuid, sizeof g->uuid, "%.95s", value);
    else if (!strcmp(key, "name")) snprintf(g->name, sizeof g->name, "%.95s", value);
    else if (!strcmp(key, "process") && g->n_processes < MAX_PROCESSES) {
        Process *p = &g->processes[g->n_processes++];
        long long bytes = -1;
        sscanf(value, "%u %lld", &p->pid, &bytes);
        p->bytes = (unsigned long long)bytes;
    }
    else if (!strcmp(key, "xid") && g->n_xids < MAX_XIDS) g->xids[g->n_xids++] = (unsigned)n;
#define FIELD(f) else if (!strcmp(key, #f)) g->f = n;
    FIELD(total) FIELD(used) FIELD(reserved) FIELD(util) FIELD(temp) FIELD(power_mw) FIELD(pcie_rx)
    FIELD(pcie_tx) FIELD(nvlink_rx) FIELD(nvlink_tx) FIELD(mig) FIELD(pcie_gen) FIELD(pcie_width)
    FIELD(pcie_gen_max) FIELD(pcie_width_max) FIELD(nvlinks) FIELD(nvlink_version)
    FIELD(cpu_mask) FIELD(sm) FIELD(tensor) FIELD(dram) FIELD(clock) FIELD(clock_max)
    FIELD(clock_limits)
}

static void load(void) {
    const char *path = getenv("HEADWAY_NVML_STUB_STATE");
    struct stat now;
    if (!path || stat(path, &now)) { S.n = 0; S.hang = S.error = 0; S.init_error = 9; return; }
    if (now.st_ino == seen.st_ino && now.st_size == seen.st_size && !strcmp(path, seen_path)
        && !memcmp(&now.st_mtim, &seen.st_mtim, sizeof now.st_mtim)) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    char line[512], key[64], value[400];
    S.init_error = S.error = S.hang = S.limits = S.n = 0;
    S.limit_granule = 1;
    S.memory_v2 = S.processes = 1;
    while (fgets(line, sizeof line, file)) {
        value[0] = 0;
        if (sscanf(line, "%63s %399[^\n]", key, value) >= 1 && S.n < MAX_GPUS) set(key, value);
    }
    fclose(file);
    seen = now;
    snprintf(seen_path, sizeof seen_path, "%s", path);
}

static int enter(void) {
    for (load(); S.hang; load()) usleep(5000);
    return started ? (int)S.error : UNINITIALIZED;
}
static int device(void *handle, Gpu **gpu) {
    int error = enter();
    long i = (long)handle - 1;
    if (error) return error;
    if (i < 0 || i >= S.n) return INVALID_ARGUMENT;
    *gpu = &S.gpu[i];
    return (int)(*gpu)->error;
}
static int nth(int parent, unsigned index, void **handle) {
    for (int i = 0; i < S.n; i++)
        if (S.gpu[i].parent == parent && index-- == 0) {
            *handle = (void *)(long)(i + 1);
            return (int)S.gpu[i].error;
        }
    return NOT_FOUND;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    for (load(); S.hang; load()) usleep(5000);
    if (!S.init_error) started++;
    return (int)S.init_error;
}
int nvmlShutdown(void) { if (started) started--; return OK; }
const char *nvmlErrorString(int code) { (void)code; return "stub error"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    int error = enter();
    *count = 0;
    for (int i = 0; i < S.n; i++) *count += S.gpu[i].parent < 0;
    return error;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    int error = enter();
    return error ? error : nth(-1, index, handle);
}

#define DEVICE(h) Gpu *g; int error = device(h, &g); if (error) return error;
int nvmlDeviceGetName(void *h, char *out, unsigned n) { DEVICE(h) snprintf(out, n, "%s", g->name); return OK; }
int nvmlDeviceGetUUID(void *h, char *out, unsigned n) { DEVICE(h) snprintf(out, n, "%s", g->uuid); return OK; }

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
int nvmlDeviceGetMemoryInfo(void *h, Memory *m) {
    DEVICE(h)
    if (g->total < 0) return NOT_SUPPORTED;
    m->total = g->total; m->used = g->used + g->reserved; m->free = m->total - m->used;
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(void *h, MemoryV2 *m) {
    DEVICE(h)
    if (!S.memory_v2) return 13; /* FUNCTION_NOT_FOUND */
    if (m->version != 0x02000028) return 25; /* ARGUMENT_VERSION_MISMATCH */
    if (g->total < 0) return NOT_SUPPORTED;
    m->total = g->total; m->reserved = g->reserved; m->used = g->used;
    m->free = g->total - g->used - g->reserved;
    return OK;
}

#define GIVE(value) do { if ((value) < 0) return NOT_SUPPORTED; *out = (unsigned)(value); return OK; } while (0)
int nvmlDeviceGetUtilizationRates(void *h, unsigned out[2]) {
    DEVICE(h)
    out[1] = 0;
    GIVE(g->util);
}
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *out) { (void)sensor; DEVICE(h) GIVE(g->temp); }
int nvmlDeviceGetPowerUsage(void *h, unsigned *out) { DEVICE(h) GIVE(g->power_mw); }
int nvmlDeviceGetPcieThroughput(void *h, int counter, unsigned *out) {
    DEVICE(h)
    GIVE(counter == 0 ? g->pcie_tx : g->pcie_rx);
}
int nvmlDeviceGetCurrPcieLinkGeneration(void *h, unsigned *out) { DEVICE(h) GIVE(g->pcie_gen); }
int nvmlDeviceGetCurrPcieLinkWidth(void *h, unsigned *out) { DEVICE(h) GIVE(g->pcie_width); }
int nvmlDeviceGetMaxPcieLinkGeneration(void *h, unsigned *out) { DEVICE(h) GIVE(g->pcie_gen_max); }
int nvmlDeviceGetMaxPcieLinkWidth(void *h, unsigned *out) { DEVICE(h) GIVE(g->pcie_width_max); }
int nvmlDeviceGetNvLinkState(void *h, unsigned link, unsigned *out) {
    DEVICE(h)
    if (g->nvlinks < 0) return NOT_SUPPORTED;
    if (link >= 18) return INVALID_ARGUMENT; /* as an H100 has */
    *out = link < g->nvlinks;
    return OK;
}
int nvmlDeviceGetNvLinkVersion(void *h, unsigned link, unsigned *out) {
    (void)link;
    DEVICE(h)
    GIVE(g->nvlink_version);
}
int nvmlDeviceGetCpuAffinity(void *h, unsigned n, unsigned long *out) {
    DEVICE(h)
    if (g->cpu_mask < 0) return NOT_SUPPORTED;
    memset(out, 0, n * sizeof *out);
    out[0] = (unsigned long)g->cpu_mask;
    return OK;
}
int nvmlDeviceGetClockInfo(void *h, int clock, unsigned *out) { (void)clock; DEVICE(h) GIVE(g->clock); }
int nvmlDeviceGetMaxClockInfo(void *h, int clock, unsigned *out) { (void)clock; DEVICE(h) GIVE(g->clock_max); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *out) {
    DEVICE(h)
    if (g->clock_limits < 0) return NOT_SUPPORTED;
    *out = (unsigned long long)g->clock_limits;
    return OK;
}

/* The counters of performance: what a sample has is of the time until it was taken. */
typedef struct { long long sm, tensor, dram; } Sample;
typedef struct { unsigned id; int result; double value; char *words[3]; } Metric;
typedef struct { unsigned version, n; Sample *before, *now; Metric metric[]; } Metrics;
int nvmlGpmQueryDeviceSupport(void *h, unsigned out[2]) { DEVICE(h) out[1] = g->sm >= 0; return OK; }
int nvmlGpmSampleAlloc(Sample **sample) { *sample = calloc(1, sizeof **sample); return *sample ? OK : 999; }
int nvmlGpmSampleFree(Sample *sample) { free(sample); return OK; }
int nvmlGpmSampleGet(void *h, Sample *sample) {
    DEVICE(h)
    if (g->sm < 0) return NOT_SUPPORTED;
    *sample = (Sample){g->sm, g->tensor, g->dram};
    return OK;
}
int nvmlGpmMetricsGet(Metrics *m) {
    if (m->version != 1) return 25; /* ARGUMENT_VERSION_MISMATCH */
    for (unsigned i = 0; i < m->n; i++) {
        unsigned id = m->metric[i].id;
        long long v = id == 2 ? m->now->sm : id == 5 ? m->now->tensor : id == 10 ? m->now->dram : -1;
        m->metric[i].result = v < 0 ? NOT_SUPPORTED : OK;
        m->metric[i].value = (double)v;
    }
    return OK;
}
int nvmlDeviceGetMigMode(void *h, unsigned *out, unsigned *pending) {
    DEVICE(h)
    *pending = (unsigned)g->mig;
    GIVE(g->mig);
}
int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *out) { DEVICE(h) GIVE(g->mig == 1 ? 7 : 0); }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned index, void **handle) {
    DEVICE(h)
    return nth((int)(g - S.gpu), index, handle);
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, Process *out) {
    DEVICE(h)
    if (!S.processes) return NOT_SUPPORTED;
    unsigned room = *count;
    *count = g->n_processes;
    if (room < g->n_processes) return INSUFFICIENT_SIZE;
    if (out) memcpy(out, g->processes, g->n_processes * sizeof *out);
    return OK;
}

/* What a control group may have of a GPU goes with the group's directory. */
typedef struct { const char *group; unsigned long long soft, hard, used; } Limits;
static void limit_path(char *out, size_t n, const Gpu *g, const char *group) {
    int at = snprintf(out, n, "%s.limits/%s:", getenv("HEADWAY_NVML_STUB_STATE"), g->uuid);
    snprintf(out + at, n - (size_t)at, "%s", group);
    for (char *c = out + at; *c; c++) if (*c == '/') *c = '%';
}
int nvmlDeviceSetMemoryLimits_v1(void *h, const Limits *l) {
    char path[8192];
    DEVICE(h)
    if (!S.limits) return 13;
    if (S.limits > 2) return (int)S.limits;
    if (g->parent >= 0) return NOT_SUPPORTED;
    if (access(l->group, F_OK)) return NOT_FOUND;
    if (S.limits == 2) return OK;
    snprintf(path, sizeof path, "%s.limits", seen_path);
    mkdir(path, 0777);
    limit_path(path, sizeof path, g, l->group);
    if (!l->soft && l->hard == ~0ull) { unlink(path); return OK; }
    FILE *file = fopen(path, "w");
    if (!file) return 999;
    unsigned long long granule = (unsigned long long)S.limit_granule;
    fprintf(file, "%llu %llu\n", l->soft, (l->hard + granule - 1) / granule * granule);
    fclose(file);
    return OK;
}
int nvmlDeviceGetMemoryLimits_v1(void *h, Limits *l) {
    char path[8192];
    DEVICE(h)
    if (!S.limits) return 13;
    limit_path(path, sizeof path, g, l->group);
    FILE *file = access(l->group, F_OK) ? NULL : fopen(path, "r");
    if (!file) return NOT_SUPPORTED; /* as of a group without one */
    int read = fscanf(file, "%llu %llu", &l->soft, &l->hard);
    fclose(file);
    return read == 2 ? OK : 999;
}

typedef struct {
    unsigned field, scope; long long timestamp, latency; int type, result;
    unsigned long long value;
} Field;
int nvmlDeviceGetFieldValues(void *h, int n, Field *f) {
    DEVICE(h)
    for (int i = 0; i < n; i++) { /* 138 transmitted, 139 received, in KiB, all links together */
        long long v = f[i].field == 138 ? g->nvlink_tx : f[i].field == 139 ? g->nvlink_rx : -1;
        f[i].result = v < 0 || f[i].scope != 0xFFFFFFFFu ? NOT_SUPPORTED : OK;
        f[i].type = 3;
        f[i].value = (unsigned long long)v;
    }
    return OK;
}

typedef struct { void *handle; unsigned given; } Events; /* of one GPU */
typedef struct { void *device; unsigned long long type, data; unsigned gi, ci; } Event;
int nvmlEventSetCreate(Events **set) { *set = calloc(1, sizeof **set); return *set ? OK : 999; }
int nvmlEventSetFree(Events *set) { free(set); return OK; }
int nvmlDeviceRegisterEvents(void *h, unsigned long long types, Events *set) {
    (void)types;
    DEVICE(h)
    set->handle = h;
    set->given = g->n_xids;
    return OK;
}
int nvmlEventSetWait_v2(Events *set, Event *out, unsigned timeout_ms) {
    (void)timeout_ms;
    Gpu *g = NULL;
    int error = device(set->handle, &g); /* a GPU that is lost has told of it */
    if (!g) return error;
    if (set->given >= g->n_xids) return 10; /* TIMEOUT */
    memset(out, 0, sizeof *out);
    out->device = set->handle;
    out->type = 8;
    out->data = g->xids[set->given++];
    return OK;
}
