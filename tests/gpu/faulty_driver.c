// A Vulkan driver that hands everything to a real one (FAULTY_DRIVER_OF names its library) and
// fails on request: faulty_driver_lose() loses the device, as a watchdog or an unplugged card
// does; faulty_driver_room(bytes) is all the device memory there is from then on. Built with
// another CARD it is the driver of a second, equal card: its device has another UUID. No headers of
// Vulkan are needed: an installable driver is two exported functions, and what is replaced here
// has plain arguments. Numbers: VkResult and VkStructureType of the Vulkan specification.
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_LOST (-4)
#define OUT_OF_DEVICE_MEMORY (-2)
#define VULKAN_11_PROPERTIES 50
#define ID_PROPERTIES 1000071004
#define MOST 65536
#ifndef CARD
#define CARD 0
#endif

typedef void (*Function)(void);
typedef Function (*Lookup)(void *, const char *);

static Lookup instance_lookup, device_lookup;
static int lost, (*allocate)(void *, const void *, const void *, uint64_t *);
static void (*release)(void *, uint64_t, const void *);
static uint64_t room = UINT64_MAX, used, handles[MOST], sizes[MOST];

void faulty_driver_lose(int yes) { lost = yes; }
void faulty_driver_room(uint64_t bytes) { room = bytes; }
uint64_t faulty_driver_used(void) { return used; }

#define FAILING(name, parameters, arguments)            \
    static int(*real_##name) parameters;                \
    static int name parameters { return lost ? DEVICE_LOST : real_##name arguments; }

FAILING(vkQueueSubmit, (void *q, uint32_t n, const void *s, uint64_t f), (q, n, s, f))
FAILING(vkQueueSubmit2, (void *q, uint32_t n, const void *s, uint64_t f), (q, n, s, f))
// What is under way ends all the same: an implementation frees what it used after these.
static int (*real_vkQueueWaitIdle)(void *), (*real_vkDeviceWaitIdle)(void *);
static int vkQueueWaitIdle(void *queue) {
    int result = real_vkQueueWaitIdle(queue);
    return lost ? DEVICE_LOST : result;
}
static int vkDeviceWaitIdle(void *device) {
    int result = real_vkDeviceWaitIdle(device);
    return lost ? DEVICE_LOST : result;
}
FAILING(vkGetFenceStatus, (void *d, uint64_t f), (d, f))
FAILING(vkWaitForFences, (void *d, uint32_t n, const uint64_t *f, uint32_t all, uint64_t t),
        (d, n, f, all, t))
FAILING(vkWaitSemaphores, (void *d, const void *w, uint64_t t), (d, w, t))
FAILING(vkGetSemaphoreCounterValue, (void *d, uint64_t s, uint64_t *v), (d, s, v))

static int vkAllocateMemory(void *device, const void *what, const void *pool, uint64_t *memory) {
    uint64_t size = ((const uint64_t *)what)[2];  // allocationSize, after sType and pNext
    if (used + size > room) return OUT_OF_DEVICE_MEMORY;
    int result = allocate(device, what, pool, memory);
    for (int at = 0; result == 0 && at < MOST; at++)
        if (!handles[at]) {
            handles[at] = *memory, sizes[at] = size, used += size;
            break;
        }
    return result;
}

static void vkFreeMemory(void *device, uint64_t memory, const void *pool) {
    for (int at = 0; memory && at < MOST; at++)
        if (handles[at] == memory) handles[at] = 0, used -= sizes[at];
    release(device, memory, pool);
}

struct Chained {  // what these structures begin with
    uint32_t type;
    struct Chained *next;
    uint8_t device_uuid[16];
};

static void (*properties)(void *, struct Chained *);
static void vkGetPhysicalDeviceProperties2(void *device, struct Chained *answer) {
    properties(device, answer);
    for (struct Chained *each = answer->next; each; each = each->next)
        if (each->type == VULKAN_11_PROPERTIES || each->type == ID_PROPERTIES)
            each->device_uuid[15] ^= CARD;
}

static Function from_instance(void *, const char *), from_device(void *, const char *);

static Function replaced(const char *name, Function found) {
#define REPLACE(function, real)                                                    \
    if (found && (!strcmp(name, #function) || !strcmp(name, #function "KHR"))) {   \
        real = (void *)found;                                                      \
        return (Function)function;                                                 \
    }
    REPLACE(vkQueueSubmit, real_vkQueueSubmit)
    REPLACE(vkQueueSubmit2, real_vkQueueSubmit2)
    REPLACE(vkQueueWaitIdle, real_vkQueueWaitIdle)
    REPLACE(vkDeviceWaitIdle, real_vkDeviceWaitIdle)
    REPLACE(vkGetFenceStatus, real_vkGetFenceStatus)
    REPLACE(vkWaitForFences, real_vkWaitForFences)
    REPLACE(vkWaitSemaphores, real_vkWaitSemaphores)
    REPLACE(vkGetSemaphoreCounterValue, real_vkGetSemaphoreCounterValue)
    REPLACE(vkAllocateMemory, allocate)
    REPLACE(vkFreeMemory, release)
    REPLACE(vkGetPhysicalDeviceProperties2, properties)
    if (found && !strcmp(name, "vkGetInstanceProcAddr")) return (Function)from_instance;
    if (found && !strcmp(name, "vkGetDeviceProcAddr")) {
        device_lookup = (Lookup)found;
        return (Function)from_device;
    }
    return found;
}

static Function from_instance(void *instance, const char *name) {
    return replaced(name, instance_lookup(instance, name));
}

static Function from_device(void *device, const char *name) {
    return replaced(name, device_lookup(device, name));
}

static void *real(const char *name) {
    static void *library;
    if (!library) library = dlopen(getenv("FAULTY_DRIVER_OF"), RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : 0;
}

Function vk_icdGetInstanceProcAddr(void *instance, const char *name) {
    if (!instance_lookup) instance_lookup = (Lookup)real("vk_icdGetInstanceProcAddr");
    return instance_lookup ? from_instance(instance, name) : 0;
}

int vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    int (*negotiate)(uint32_t *) = real("vk_icdNegotiateLoaderICDInterfaceVersion");
    return negotiate ? negotiate(version) : -3;
}

Function vk_icdGetPhysicalDeviceProcAddr(void *instance, const char *name) {
    Lookup lookup = (Lookup)real("vk_icdGetPhysicalDeviceProcAddr");
    return lookup ? replaced(name, lookup(instance, name)) : 0;
}
