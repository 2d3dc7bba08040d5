/*
 * Copyright (c) 2026 headroom.serving contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Plays NVIDIA's libnvidia-ml.so.1 to programs that link or load it, for machines without a GPU: it answers from the
 * text file that README.md beside this describes. The functions are those that nvidia-ml-py calls for what the
 * collection asks; each has the signature and the structures of NVIDIA's nvml.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS 64
#define PROCESSES 128
#define DEFAULT_FILE "/etc/nvml-stand-in.txt"
#define MEMORY_V2 0x02000028u
#define P2P_NVLINK 2
#define NOT_AVAILABLE 0xffffffffffffffffull

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, FUNCTION_NOT_FOUND = 13, ARGUMENT_VERSION_MISMATCH = 25 };

struct process {
    unsigned pid;
    unsigned long long bytes;
};

struct gpu {
    char name[96], uuid[96], bus[32], unsupported[128];
    unsigned long long total, used, reserved;
    int major, minor, generation, width, mig, error, dead;
    unsigned processes;
    struct process process[PROCESSES];
};

struct memory_v1 {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct pci_info {
    char legacy_bus[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct process_info {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static char driver[81];
static int cuda, failure, started;
static unsigned count;
static struct gpu gpus[GPUS];
static char links[GPUS][GPUS][8];

/* Returns what follows a key on a line, or NULL if the line has another key. */
static char *value_of(char *line, const char *key)
{
    size_t length = strlen(key);

    return strncmp(line, key, length) == 0 && line[length] == ' ' ? line + length + 1 : NULL;
}

static void read_gpu(struct gpu *gpu, char *line)
{
    char *value;

    if ((value = value_of(line, "name")))
        snprintf(gpu->name, sizeof gpu->name, "%s", value);
    else if ((value = value_of(line, "uuid")))
        snprintf(gpu->uuid, sizeof gpu->uuid, "%s", value);
    else if ((value = value_of(line, "bus")))
        snprintf(gpu->bus, sizeof gpu->bus, "%s", value);
    else if ((value = value_of(line, "unsupported")))
        snprintf(gpu->unsupported, sizeof gpu->unsupported, " %s ", value);
    else if ((value = value_of(line, "total")))
        gpu->total = strtoull(value, NULL, 10);
    else if ((value = value_of(line, "used")))
        gpu->used = strtoull(value, NULL, 10);
    else if ((value = value_of(line, "reserved")))
        gpu->reserved = strtoull(value, NULL, 10);
    else if ((value = value_of(line, "capability")))
        sscanf(value, "%d.%d", &gpu->major, &gpu->minor);
    else if ((value = value_of(line, "pcie")))
        sscanf(value, "%d %d", &gpu->generation, &gpu->width);
    else if ((value = value_of(line, "mig")))
        gpu->mig = atoi(value);
    else if ((value = value_of(line, "error")))
        gpu->error = atoi(value);
    else if ((value = value_of(line, "dead")))
        gpu->dead = atoi(value);
    else if ((value = value_of(line, "process")) && gpu->processes < PROCESSES) {
        struct process *process = &gpu->process[gpu->processes++];

        process->bytes = NOT_AVAILABLE;
        sscanf(value, "%u %llu", &process->pid, &process->bytes);
    }
}

static int read_file(void)
{
    const char *path = getenv("NVML_STAND_IN");
    FILE *file = fopen(path && *path ? path : DEFAULT_FILE, "r");
    char line[512], kind[8], *text, *value;
    unsigned one, other;

    if (!file)
        return DRIVER_NOT_LOADED;
    driver[0] = '\0';
    cuda = failure = 0;
    count = 0;
    memset(gpus, 0, sizeof gpus);
    memset(links, 0, sizeof links);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = '\0';
        text = line + strspn(line, " ");
        if ((value = value_of(text, "driver")))
            snprintf(driver, sizeof driver, "%s", value);
        else if ((value = value_of(text, "cuda"))) {
            int major = 0, minor = 0;

            sscanf(value, "%d.%d", &major, &minor);
            cuda = major * 1000 + minor * 10;
        } else if ((value = value_of(text, "fail")))
            failure = atoi(value);
        else if ((value = value_of(text, "link")) && sscanf(value, "%u %u %7s", &one, &other, kind) == 3) {
            if (one < GPUS && other < GPUS) {
                strcpy(links[one][other], kind);
                strcpy(links[other][one], kind);
            }
        } else if (strcmp(text, "gpu") == 0 && count < GPUS)
            gpus[count++].mig = -1;
        else if (count)
            read_gpu(&gpus[count - 1], text);
    }
    fclose(file);
    return failure;
}

static int refuses(const struct gpu *gpu, const char *word)
{
    char padded[40];

    snprintf(padded, sizeof padded, " %s ", word);
    return strstr(gpu->unsupported, padded) != NULL;
}

/* What every function about a GPU checks first. */
static int check(const struct gpu *gpu, const char *word)
{
    if (!started)
        return UNINITIALIZED;
    if (gpu < gpus || gpu >= gpus + count)
        return INVALID_ARGUMENT;
    if (gpu->dead)
        return gpu->dead;
    return refuses(gpu, word) ? NOT_SUPPORTED : SUCCESS;
}

int nvmlInitWithFlags(unsigned flags)
{
    int result = read_file();

    (void)flags;
    if (result == SUCCESS)
        started++;
    return result;
}

int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

int nvmlShutdown(void)
{
    if (!started)
        return UNINITIALIZED;
    started--;
    return SUCCESS;
}

const char *nvmlErrorString(int result)
{
    switch (result) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case FUNCTION_NOT_FOUND: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

static int copy(char *target, unsigned length, const char *text)
{
    if (strlen(text) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(target, text);
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    return started ? copy(version, length, driver) : UNINITIALIZED;
}

int nvmlSystemGetCudaDriverVersion(int *version)
{
    *version = cuda;
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

int nvmlDeviceGetCount_v2(unsigned *found)
{
    *found = count;
    return started ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **gpu)
{
    if (!started)
        return UNINITIALIZED;
    if (index >= count)
        return INVALID_ARGUMENT;
    *gpu = &gpus[index];
    return gpus[index].error;
}

int nvmlDeviceGetIndex(struct gpu *gpu, unsigned *index)
{
    *index = gpu - gpus;
    return check(gpu, "index");
}

int nvmlDeviceGetName(struct gpu *gpu, char *name, unsigned length)
{
    int result = check(gpu, "name");

    return result ? result : copy(name, length, gpu->name);
}

int nvmlDeviceGetUUID(struct gpu *gpu, char *uuid, unsigned length)
{
    int result = check(gpu, "uuid");

    return result ? result : copy(uuid, length, gpu->uuid);
}

int nvmlDeviceGetPciInfo_v3(struct gpu *gpu, struct pci_info *info)
{
    int result = check(gpu, "pci");

    if (result)
        return result;
    memset(info, 0, sizeof *info);
    snprintf(info->bus_id, sizeof info->bus_id, "%s", gpu->bus);
    sscanf(gpu->bus, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->legacy_bus, sizeof info->legacy_bus, "%04X:%02X:%02X.0", info->domain & 0xffff, info->bus & 0xff,
             info->device & 0xff);
    return SUCCESS;
}

/* Without a version of its own: what the driver reserves counts as used. */
int nvmlDeviceGetMemoryInfo(struct gpu *gpu, struct memory_v1 *memory)
{
    int result = check(gpu, "memory");

    if (result)
        return result;
    memory->total = gpu->total;
    memory->used = gpu->used + gpu->reserved;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(struct gpu *gpu, struct memory_v2 *memory)
{
    int result = check(gpu, "memory");

    if (result)
        return result;
    if (refuses(gpu, "memory_v2"))
        return FUNCTION_NOT_FOUND;
    if (memory->version != MEMORY_V2)
        return ARGUMENT_VERSION_MISMATCH;
    memory->total = gpu->total;
    memory->reserved = gpu->reserved;
    memory->used = gpu->used;
    memory->free = gpu->total - gpu->used - gpu->reserved;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(struct gpu *gpu, int *major, int *minor)
{
    *major = gpu->major;
    *minor = gpu->minor;
    return check(gpu, "capability");
}

int nvmlDeviceGetMaxPcieLinkGeneration(struct gpu *gpu, unsigned *generation)
{
    *generation = gpu->generation;
    return check(gpu, "pcie");
}

/* An idle GPU runs its link slowly, and the stand-in is idle. */
int nvmlDeviceGetCurrPcieLinkGeneration(struct gpu *gpu, unsigned *generation)
{
    *generation = 1;
    return check(gpu, "pcie");
}

int nvmlDeviceGetMaxPcieLinkWidth(struct gpu *gpu, unsigned *width)
{
    *width = 16;
    return check(gpu, "pcie");
}

int nvmlDeviceGetCurrPcieLinkWidth(struct gpu *gpu, unsigned *width)
{
    *width = gpu->width;
    return check(gpu, "pcie");
}

int nvmlDeviceGetMigMode(struct gpu *gpu, unsigned *current, unsigned *pending)
{
    *current = *pending = gpu->mig == 1;
    return gpu->mig < 0 ? NOT_SUPPORTED : check(gpu, "mig");
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct gpu *gpu, unsigned *room, struct process_info *info)
{
    int result = check(gpu, "processes");
    unsigned size = *room;

    if (result)
        return result;
    *room = gpu->processes;
    if (gpu->processes > size)
        return INSUFFICIENT_SIZE;
    for (unsigned place = 0; place < gpu->processes; place++) {
        info[place].pid = gpu->process[place].pid;
        info[place].used = gpu->process[place].bytes;
        info[place].gpu_instance = info[place].compute_instance = 0xffffffffu;
    }
    return SUCCESS;
}

static const char *link_of(const struct gpu *one, const struct gpu *other)
{
    const char *kind = links[one - gpus][other - gpus];

    return *kind ? kind : "SYS";
}

int nvmlDeviceGetP2PStatus(struct gpu *one, struct gpu *other, unsigned kind, unsigned *status)
{
    int result = check(one, "p2p");

    if (!result)
        result = check(other, "p2p");
    if (!result)
        *status = kind == P2P_NVLINK && strcmp(link_of(one, other), "NVL") != 0 ? 5 : 0;
    return result;
}

int nvmlDeviceGetNvLinkState(struct gpu *gpu, unsigned link, unsigned *active)
{
    int result = check(gpu, "p2p");

    if (result)
        return result;
    *active = 0;
    for (unsigned place = 0; place < count; place++)
        if (strcmp(link_of(gpu, &gpus[place]), "NVL") == 0)
            *active = 1;
    return link < 18 && *active ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetTopologyCommonAncestor(struct gpu *one, struct gpu *other, unsigned *level)
{
    static const struct {
        const char *name;
        unsigned level;
    } levels[] = {{"PIX", 10}, {"PXB", 20}, {"PHB", 30}, {"NODE", 40}, {"SYS", 50}, {"NVL", 50}};
    int result = check(one, "topology");

    if (!result)
        result = check(other, "topology");
    for (unsigned place = 0; !result && place < sizeof levels / sizeof *levels; place++)
        if (strcmp(link_of(one, other), levels[place].name) == 0)
            *level = levels[place].level;
    return result;
}
