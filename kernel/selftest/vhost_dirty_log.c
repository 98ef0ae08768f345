// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test of the dirty log of in-kernel vhost: each page of guest memory that a device writes must be
 * marked in the bitmap that VHOST_SET_LOG_BASE names, whatever state the bitmap's own pages are in.
 *
 * There is no guest and no KVM. The program plays the guest's driver and the monitor: it has
 * descriptors used in bursts, lets the device come to rest, takes the bitmap and compares it with
 * what the used ring says was written. A page that was written and is not marked fails the case,
 * and so does one that is marked and was not written. Cases run in processes of their own.
 *
 *	vsock-tx  vhost-vsock, from the guest: writes its used ring only
 *	vsock-rx  vhost-vsock, to the guest: does not log the buffers that it writes
 *	net-rx    vhost-net, to the guest from a tap: logs used ring and buffers
 *	test      vhost_test, if the kernel has it: writes its used ring only
 *
 * With --bench it measures instead what a descriptor costs, with logging and without.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/userfaultfd.h>
#include <linux/vhost.h>
#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>
#include <linux/virtio_vsock.h>
#include <linux/vm_sockets.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* drivers/vhost/test.h is no header for programs. */
#define TEST_RUN _IOW(VHOST_VIRTIO, 0x31, int)

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

#define __noreturn     __attribute__((noreturn))
#define __printf(a, b) __attribute__((format(printf, a, b)))

#define KSFT_PASS  0
#define KSFT_FAIL  1
#define KSFT_XFAIL 2
#define KSFT_SKIP  4

/* Nothing here takes seconds, but the whole machine may be emulated and busy. */
#define WAIT_SECONDS  20
#define STUCK_SECONDS 90

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)                       \
	({                              \
		__typeof__(a) _a = (a); \
		__typeof__(b) _b = (b); \
		_a < _b ? _a : _b;      \
	})
#define MAX(a, b)                       \
	({                              \
		__typeof__(a) _a = (a); \
		__typeof__(b) _b = (b); \
		_a > _b ? _a : _b;      \
	})
#define BIT_ULL(n) (1ULL << (n))

#define PAGE	  VHOST_PAGE_SIZE
#define LONG_BITS (8 * sizeof(long))

/*
 * Guest memory. One page of log stands for SPAN bytes; each area lies where its bits are on a page
 * of log of its own, or on the border of two. The addresses do not fit into 32 bits. The window is
 * the part of the log where bits are expected.
 */
#define SPAN	     (8ULL * PAGE * PAGE)
#define WINDOW_FIRST 64U
#define WINDOW_PAGES 12U
#define LOG_PAGES    80U
#define WINDOW_WORDS (WINDOW_PAGES * PAGE / sizeof(long))
#define WINDOW_GPA   (WINDOW_FIRST * SPAN)

#define CONTROL_SIZE   0x20000U
#define CONTROL_GPA    WINDOW_GPA
#define USED_PAGES     16U
#define USED_SIZE      (USED_PAGES * PAGE)
#define USED_GPA       (WINDOW_GPA + 0x103 * PAGE)
#define USED_ALIAS_GPA (WINDOW_GPA + 10 * SPAN + 0x205 * PAGE)
#define DATA_AREAS     8U
#define AREA_PAGES     32U
#define AREA_SIZE      (AREA_PAGES * PAGE)
#define DATA_PAGES     (DATA_AREAS * AREA_PAGES)
#define DATA_SIZE      (DATA_AREAS * AREA_SIZE)
#define DATA_GPA(area) (WINDOW_GPA + (2 + (area)) * SPAN - AREA_SIZE / 2)
#define DATA_ALIAS_GPA (WINDOW_GPA + 11 * SPAN - AREA_SIZE / 2)
#define LARGE_PAGES    256U
#define LARGE_SIZE     (LARGE_PAGES * PAGE)
#define LARGE_GPA      (WINDOW_GPA + 10 * SPAN - 100 * PAGE)

/* Where an IOVA would be logged by mistake is in the log, but outside of the window. */
#define CONTROL_IOVA 0x10000000ULL
#define USED_IOVA    0x20000000ULL
#define DATA_IOVA    0x30000000ULL
#define LARGE_IOVA   0x38000000ULL

/* Inside the control area, which the device only reads, but for the second queue's used ring. */
#define DESC_AT	       0x00000U
#define AVAIL_AT       0x10000U
#define SECOND_AT      0x14000U
#define SECOND_USED_AT 0x16000U
#define PACKET_AT      0x18000U
#define SECOND_NUM     64U

#define SMALLEST_BUFFER 64U
#define MOST_FRAMES	256U
#define TAP_MTU		61440
#define VSOCK_WINDOW	(64U << 20)
#define VNET_HEADER	sizeof(struct virtio_net_hdr_v1)

struct rig;

struct device {
	const char *name;
	const char *path;
	unsigned int queue; /* the one that is watched */
	bool receives;	    /* writes buffers */
	bool logs_buffers;
	bool batches; /* writes several used elements at once */
	bool iotlb;
	bool mergeable;
	void (*start)(struct rig *rig);
	void (*feed)(struct rig *rig, unsigned int frames);
};

enum {
	WITH_IOTLB = 1 << 0,
	ENTRIES_ON_DEMAND = 1 << 1, /* those of the buffers */
	ENTRY_PER_USED_PAGE = 1 << 2,
	TWO_GPAS = 1 << 3, /* used ring and first data area are mapped twice */
	EVENT_INDEX = 1 << 4,
	MERGEABLE = 1 << 5,
	COMPARE_PAGES = 1 << 6,	   /* whatever changed must be marked, too */
	UNLOGGED_BUFFERS = 1 << 7, /* look whether buffers are logged where they are not */
	SHARED_LOG = 1 << 8,
};

struct setup {
	unsigned int num; /* of the ring */
	unsigned int flags;
	uint64_t used_gpa; /* of the page that the used ring begins in */
	unsigned int used_offset;
	unsigned int log_skew; /* bytes that the log is off its natural alignment */
	unsigned int max_chain;
	unsigned int max_buffer;
	unsigned int max_burst;
};

struct queue {
	unsigned int index;
	unsigned int num;
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	int kick;
	uint16_t published;
	uint16_t taken;
	unsigned int next_desc;
};

struct rig {
	const struct device *device;
	struct setup setup;
	int fd;
	int feeder; /* the socket that a receiving device's packets come from */
	struct sockaddr_ll tap;
	unsigned int cid;
	uint32_t fed; /* bytes that went through a vsock, and those that the host knows of */
	uint32_t credited;
	struct queue queue;
	struct queue second;
	char *control;
	char *used;
	char *data;
	char *large;  /* for one case only */
	char *shadow; /* of used and data */
	char *log;
	int log_file;
	unsigned int frames;
	unsigned int frame_size[MOST_FRAMES];
	uint16_t last_event;
	uint64_t descriptors;
	/* Bits that must be set, may be set, and should be but are not on kernels as they are. */
	unsigned long want[WINDOW_WORDS];
	unsigned long may[WINDOW_WORDS];
	unsigned long known[WINDOW_WORDS];
	/* Bits of one word that are somebody else's. */
	unsigned long *foreign_word;
	unsigned long foreign;
	uint64_t known_missed;
};

struct test {
	const char *name;
	bool senders;
	bool receivers;
	unsigned int needs; /* WITH_IOTLB, MERGEABLE */
	struct setup setup;
	void (*run)(struct rig *rig, const struct test *test);
	const struct fault *fault;
};

/* What a case's process leaves to the parent. */
struct verdict {
	uint64_t progress;
	char reason[300];
};

static struct verdict *verdict;
static struct rig the_rig;

static uint64_t option_count = 10000;
static uint64_t option_seed = 1;
static const char *option_device;
static const char *option_only;
static const char *option_failures;
static const char *option_while_held;
static bool option_expect_report;
static bool option_bench;

/* Ends of a case */

static __noreturn __printf(2, 3) void end(int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(verdict->reason, sizeof(verdict->reason), format, args);
	va_end(args);
	fflush(stdout);
	_exit(status);
}

#define fail(...) end(KSFT_FAIL, __VA_ARGS__)
#define skip(...) end(KSFT_SKIP, __VA_ARGS__)

static long must(long result, const char *what)
{
	if (result < 0)
		fail("%s: %s", what, strerror(errno));
	return result;
}

static void *must_map(size_t size, int flags, int file)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, file, 0);

	if (at == MAP_FAILED)
		fail("mmap of %zu bytes: %s", size, strerror(errno));
	return at;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* xorshift64: the same numbers for the same seed, everywhere. */
static uint64_t random_state;

static unsigned int below(unsigned int bound)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 16) % bound;
}

/* The model: which bits does a write set? */

static unsigned long *window(const struct rig *rig)
{
	return (unsigned long *)(rig->log + WINDOW_FIRST * PAGE);
}

static uint64_t first_bit_of_window(const struct rig *rig)
{
	return WINDOW_GPA / PAGE - 8 * rig->setup.log_skew;
}

static void mark(const struct rig *rig, unsigned long *bits, uint64_t gpa, uint64_t size)
{
	uint64_t page, bit;

	for (page = gpa / PAGE; size && page <= (gpa + size - 1) / PAGE; page++) {
		bit = page - first_bit_of_window(rig);
		if (bit / LONG_BITS >= WINDOW_WORDS)
			fail("the test expects page %#" PRIx64 ", outside of its window", page);
		bits[bit / LONG_BITS] |= 1UL << bit % LONG_BITS;
	}
}

static void mark_used(struct rig *rig, unsigned long *bits, uint64_t offset, uint64_t size)
{
	offset += rig->setup.used_offset;
	mark(rig, bits, rig->setup.used_gpa + offset, size);
	if (rig->setup.flags & TWO_GPAS)
		mark(rig, bits, USED_ALIAS_GPA + offset, size);
}

/* Pages of the data area are scattered over the IOVAs, so that neighbours there are none here. */
static unsigned int data_page_at(const struct rig *rig, unsigned int device_page)
{
	if (rig->setup.flags & WITH_IOTLB)
		return (device_page * 77 + 13) % DATA_PAGES;
	return device_page;
}

static uint64_t device_address(const struct rig *rig, unsigned int area)
{
	return rig->setup.flags & WITH_IOTLB ? DATA_IOVA + area * AREA_SIZE : DATA_GPA(area);
}

static void mark_data_page(struct rig *rig, unsigned long *bits, unsigned int page)
{
	mark(rig, bits, DATA_GPA(page / AREA_PAGES) + page % AREA_PAGES * PAGE, 1);
	if ((rig->setup.flags & TWO_GPAS) && page < AREA_PAGES)
		mark(rig, bits, DATA_ALIAS_GPA + page * PAGE, 1);
}

static void mark_data(struct rig *rig, unsigned long *bits, uint64_t address, uint64_t size)
{
	unsigned int area = 0, page, last;

	while (address - device_address(rig, area) >= AREA_SIZE)
		area++;
	address -= device_address(rig, area);
	page = area * AREA_PAGES + address / PAGE;
	last = area * AREA_PAGES + (address + size - 1) / PAGE;
	for (; size && page <= last; page++)
		mark_data_page(rig, bits, data_page_at(rig, page));
}

/* Buffers that a device is known not to log are looked at by one case and left alone by others. */
static unsigned long *data_bits(struct rig *rig)
{
	if (rig->device->logs_buffers)
		return rig->want;
	return rig->setup.flags & UNLOGGED_BUFFERS ? rig->known : rig->may;
}

/*
 * With an entry of the device IOTLB for each page, log_used() stops after the first of them: it
 * keeps the number of entries and the outcome of each in one variable.
 */
static void expect_used_element(struct rig *rig, unsigned int slot, bool first)
{
	uint64_t offset = offsetof(struct vring_used, ring[slot]);
	uint64_t in_page = PAGE - (rig->setup.used_offset + offset) % PAGE;
	uint64_t head = MIN(in_page, sizeof(struct vring_used_elem));
	bool split = rig->setup.flags & ENTRY_PER_USED_PAGE;
	bool batched = split && rig->device->batches && !first;

	mark_used(rig, batched ? rig->known : rig->want, offset, head);
	mark_used(rig, split ? rig->known : rig->want, offset + head,
		  sizeof(struct vring_used_elem) - head);
}

static void expect_data(struct rig *rig, const struct vring_used_elem *used)
{
	const struct vring_desc *desc;
	unsigned int id = used->id, left = used->len, part;

	for (;;) {
		if (id >= rig->queue.num)
			fail("the used ring names descriptor %u of %u", id, rig->queue.num);
		desc = &rig->queue.desc[id];
		part = MIN(left, desc->len);
		mark_data(rig, data_bits(rig), desc->addr, part);
		/* With a device IOTLB, vhost logs buffers up to their ends. */
		if (rig->setup.flags & WITH_IOTLB)
			mark_data(rig, rig->may, desc->addr, desc->len);
		left -= part;
		if (!(desc->flags & VRING_DESC_F_NEXT))
			break;
		id = desc->next;
	}
	if (left)
		fail("%u bytes more were used than chain %u has", left, used->id);
}

static uint16_t avail_event(const struct queue *q)
{
	return __atomic_load_n((uint16_t *)&q->used->ring[q->num], __ATOMIC_ACQUIRE);
}

static void expect_event(struct rig *rig)
{
	uint64_t offset = offsetof(struct vring_used, ring[rig->queue.num]);
	uint16_t event = avail_event(&rig->queue);

	if (!(rig->setup.flags & EVENT_INDEX))
		return;
	mark_used(rig, event == rig->last_event ? rig->may : rig->want, offset, sizeof(event));
	rig->last_event = event;
}

/* The used ring's flags and index lie in one page: the ring is aligned to 4 bytes. */
static void expect_used_head(struct rig *rig)
{
	mark_used(rig, rig->want, 0, offsetof(struct vring_used, ring));
}

static void expect_burst(struct rig *rig)
{
	struct queue *q = &rig->queue;
	uint16_t begin = q->taken;

	if (q->taken != q->published)
		expect_used_head(rig);
	else
		mark_used(rig, rig->may, 0, offsetof(struct vring_used, ring));
	for (; q->taken != q->published; q->taken++) {
		expect_used_element(rig, q->taken % q->num, q->taken == begin);
		if (rig->device->receives)
			expect_data(rig, &q->used->ring[q->taken % q->num]);
	}
	expect_event(rig);
}

/* Whatever differs from the last look was written, whatever the used ring says. */
static void expect_changed(struct rig *rig)
{
	unsigned int page;
	char *copy;

	for (page = 0; page < USED_PAGES; page++) {
		copy = rig->shadow + page * PAGE;
		if (!memcmp(copy, rig->used + page * PAGE, PAGE))
			continue;
		mark(rig, rig->setup.flags & ENTRY_PER_USED_PAGE ? rig->known : rig->want,
		     rig->setup.used_gpa + page * PAGE, 1);
		memcpy(copy, rig->used + page * PAGE, PAGE);
	}
	for (page = 0; page < DATA_PAGES; page++) {
		copy = rig->shadow + USED_SIZE + page * PAGE;
		if (!memcmp(copy, rig->data + page * PAGE, PAGE))
			continue;
		mark_data_page(rig, data_bits(rig), page);
		memcpy(copy, rig->data + page * PAGE, PAGE);
	}
}

/* The log */

static void log_create(struct rig *rig)
{
	size_t size = LOG_PAGES * PAGE;

	rig->log_file = -1;
	if (!(rig->setup.flags & SHARED_LOG)) {
		rig->log = must_map(size, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		return;
	}
	rig->log_file = must(memfd_create("vhost dirty log", MFD_CLOEXEC), "memfd_create");
	must(ftruncate(rig->log_file, size), "ftruncate of the log");
	rig->log = must_map(size, MAP_SHARED, rig->log_file);
}

/* Exchange first, look afterwards: a bit that is set meanwhile stays for the next time. */
static unsigned long harvest_word(struct rig *rig, unsigned long *word)
{
	unsigned long leave = word == rig->foreign_word ? rig->foreign : 0;

	if (!__atomic_load_n(word, __ATOMIC_RELAXED))
		return 0;
	return __atomic_fetch_and(word, leave, __ATOMIC_SEQ_CST) & ~leave;
}

static uint64_t address_of(const struct rig *rig, unsigned int word, unsigned long bits)
{
	return (first_bit_of_window(rig) + word * LONG_BITS + __builtin_ctzl(bits)) * PAGE;
}

/* Takes the window's bits and compares them with what is expected since the last time. */
static void check_log(struct rig *rig)
{
	uint64_t missed_at = 0, extra_at = 0;
	unsigned int i, missed = 0, extra = 0;
	unsigned long seen, bits;

	for (i = 0; i < WINDOW_WORDS; i++) {
		seen = harvest_word(rig, &window(rig)[i]);
		bits = rig->want[i] & ~seen;
		if (bits && !missed)
			missed_at = address_of(rig, i, bits);
		missed += __builtin_popcountl(bits);
		bits = seen & ~(rig->want[i] | rig->may[i] | rig->known[i]);
		if (bits && !extra)
			extra_at = address_of(rig, i, bits);
		extra += __builtin_popcountl(bits);
		bits = rig->known[i] & ~rig->want[i] & ~seen;
		rig->known_missed += __builtin_popcountl(bits);
		rig->want[i] = rig->may[i] = rig->known[i] = 0;
	}
	if (missed)
		fail("%u written pages not marked, the first at %#" PRIx64 ", after %" PRIu64
		     " descriptors",
		     missed, missed_at, rig->descriptors);
	if (extra)
		fail("%u pages marked and not written, the first at %#" PRIx64 ", after %" PRIu64
		     " descriptors",
		     extra, extra_at, rig->descriptors);
}

static void check_no_strays(struct rig *rig)
{
	unsigned long *word = (unsigned long *)rig->log;
	unsigned int i;

	check_log(rig);
	for (i = 0; i < LOG_PAGES * PAGE / sizeof(long); i++)
		if (word[i] && &word[i] != rig->foreign_word)
			fail("page %#lx is marked, far from all that was written",
			     i * LONG_BITS + __builtin_ctzl(word[i]));
}

/* The monitor's side of the device */

static void vhost(struct rig *rig, unsigned long request, const char *name, void *argument)
{
	if (ioctl(rig->fd, request, argument) < 0)
		fail("%s: %s", name, strerror(errno));
}

#define VHOST(rig, request, argument) vhost(rig, request, #request, argument)

/* Each of these requests waits for the device's worker, and takes the queues' locks. */
static void quiesce(struct rig *rig)
{
	int none = -1;

	VHOST(rig, VHOST_SET_LOG_FD, &none);
}

static void set_log_base(struct rig *rig)
{
	uint64_t base = (uintptr_t)rig->log + rig->setup.log_skew;

	VHOST(rig, VHOST_SET_LOG_BASE, &base);
}

static void set_features(struct rig *rig, bool logging)
{
	uint64_t offered, features = BIT_ULL(VIRTIO_F_VERSION_1);

	if (logging)
		features |= BIT_ULL(VHOST_F_LOG_ALL);
	if (rig->setup.flags & WITH_IOTLB)
		features |= BIT_ULL(VIRTIO_F_ACCESS_PLATFORM);
	if (rig->setup.flags & EVENT_INDEX)
		features |= BIT_ULL(VIRTIO_RING_F_EVENT_IDX);
	if (rig->setup.flags & MERGEABLE)
		features |= BIT_ULL(VIRTIO_NET_F_MRG_RXBUF);
	VHOST(rig, VHOST_GET_FEATURES, &offered);
	if (features & ~offered)
		skip("the device does not offer features %#" PRIx64, features & ~offered);
	VHOST(rig, VHOST_SET_FEATURES, &features);
}

static void add_region(struct vhost_memory *table, uint64_t gpa, uint64_t size, const char *hva)
{
	table->regions[table->nregions++] = (struct vhost_memory_region){
		.guest_phys_addr = gpa,
		.memory_size = size,
		.userspace_addr = (uintptr_t)hva,
	};
}

static void set_memory(struct rig *rig)
{
	struct vhost_memory *table =
		calloc(1, sizeof(*table) + (DATA_AREAS + 5) * sizeof(table->regions[0]));
	unsigned int i;

	if (!table)
		fail("no memory for the memory table");
	add_region(table, CONTROL_GPA, CONTROL_SIZE, rig->control);
	add_region(table, rig->setup.used_gpa, USED_SIZE, rig->used);
	for (i = 0; i < DATA_AREAS; i++)
		add_region(table, DATA_GPA(i), AREA_SIZE, rig->data + i * AREA_SIZE);
	if (rig->setup.flags & TWO_GPAS) {
		add_region(table, USED_ALIAS_GPA, USED_SIZE, rig->used);
		add_region(table, DATA_ALIAS_GPA, AREA_SIZE, rig->data);
	}
	if (rig->large)
		add_region(table, LARGE_GPA, LARGE_SIZE, rig->large);
	VHOST(rig, VHOST_SET_MEM_TABLE, table);
	free(table);
}

static void iotlb_update(struct rig *rig, uint64_t iova, const char *hva, uint64_t size)
{
	struct vhost_msg message = {.type = VHOST_IOTLB_MSG};

	message.iotlb = (struct vhost_iotlb_msg){
		.iova = iova,
		.size = size,
		.uaddr = (uintptr_t)hva,
		.perm = VHOST_ACCESS_RW,
		.type = VHOST_IOTLB_UPDATE,
	};
	if (write(rig->fd, &message, sizeof(message)) != sizeof(message))
		fail("IOTLB update: %s", strerror(errno));
}

static void iotlb_update_data_page(struct rig *rig, unsigned int device_page)
{
	iotlb_update(rig, DATA_IOVA + device_page * PAGE,
		     rig->data + data_page_at(rig, device_page) * PAGE, PAGE);
}

static void iotlb_fill(struct rig *rig)
{
	unsigned int i;

	iotlb_update(rig, CONTROL_IOVA, rig->control, CONTROL_SIZE);
	if (rig->setup.flags & ENTRY_PER_USED_PAGE)
		for (i = 0; i < USED_PAGES; i++)
			iotlb_update(rig, USED_IOVA + i * PAGE, rig->used + i * PAGE, PAGE);
	else
		iotlb_update(rig, USED_IOVA, rig->used, USED_SIZE);
	if (!(rig->setup.flags & ENTRIES_ON_DEMAND))
		for (i = 0; i < DATA_PAGES; i++)
			iotlb_update_data_page(rig, i);
}

static void answer_iotlb_misses(struct rig *rig)
{
	struct vhost_msg message;
	uint64_t iova;

	while (read(rig->fd, &message, sizeof(message)) == sizeof(message)) {
		iova = message.iotlb.iova;
		if (message.iotlb.type != VHOST_IOTLB_MISS)
			fail("the device sent an IOTLB message of type %u", message.iotlb.type);
		if (iova < DATA_IOVA || iova >= DATA_IOVA + DATA_SIZE)
			fail("the device looks for IOVA %#" PRIx64, iova);
		iotlb_update_data_page(rig, (iova - DATA_IOVA) / PAGE);
	}
	if (errno != EAGAIN)
		fail("read from %s: %s", rig->device->path, strerror(errno));
}

static uint64_t ring_address(struct rig *rig, const void *hva)
{
	if (!(rig->setup.flags & WITH_IOTLB))
		return (uintptr_t)hva;
	if ((const char *)hva >= rig->used && (const char *)hva < rig->used + USED_SIZE)
		return USED_IOVA + ((const char *)hva - rig->used);
	return CONTROL_IOVA + ((const char *)hva - rig->control);
}

static uint64_t control_address(struct rig *rig, unsigned int offset)
{
	return (rig->setup.flags & WITH_IOTLB ? CONTROL_IOVA : CONTROL_GPA) + offset;
}

static void set_ring_addresses(struct rig *rig, struct queue *q, bool logging)
{
	struct vhost_vring_addr addresses = {
		.index = q->index,
		.flags = logging << VHOST_VRING_F_LOG,
		.desc_user_addr = ring_address(rig, q->desc),
		.avail_user_addr = ring_address(rig, q->avail),
		.used_user_addr = ring_address(rig, q->used),
		.log_guest_addr = rig->setup.used_gpa + rig->setup.used_offset,
	};

	/* What a monitor has there with an IOMMU is an IOVA, which is no place in the log. */
	if (rig->setup.flags & WITH_IOTLB)
		addresses.log_guest_addr = addresses.used_user_addr;
	VHOST(rig, VHOST_SET_VRING_ADDR, &addresses);
}

static void set_ring(struct rig *rig, struct queue *q, bool logging)
{
	struct vhost_vring_state state = {.index = q->index, .num = q->num};
	struct vhost_vring_file file = {.index = q->index};

	VHOST(rig, VHOST_SET_VRING_NUM, &state);
	state.num = 0;
	VHOST(rig, VHOST_SET_VRING_BASE, &state);
	set_ring_addresses(rig, q, logging);
	q->kick = must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd");
	file.fd = q->kick;
	VHOST(rig, VHOST_SET_VRING_KICK, &file);
}

static void set_logging(struct rig *rig, bool logging)
{
	if (logging)
		set_log_base(rig);
	set_features(rig, logging);
	set_ring_addresses(rig, &rig->queue, logging);
}

/* The driver's side of the rings */

static unsigned int add_desc(struct queue *q, uint64_t address, unsigned int size,
			     unsigned int flags)
{
	unsigned int id = q->next_desc;

	q->next_desc = (id + 1) % q->num;
	q->desc[id] = (struct vring_desc){
		.addr = address,
		.len = size,
		.flags = flags,
		.next = q->next_desc,
	};
	return id;
}

static void add_head(struct queue *q, unsigned int nth, unsigned int id)
{
	q->avail->ring[(q->published + nth) % q->num] = id;
}

static void publish(struct queue *q, unsigned int heads)
{
	uint64_t one = 1;

	q->published += heads;
	__atomic_store_n(&q->avail->idx, q->published, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (write(q->kick, &one, sizeof(one)) != sizeof(one))
		fail("kick: %s", strerror(errno));
}

/* A chain of buffers somewhere in the data area. Returns what fits into all but the last of it. */
static unsigned int add_chain(struct rig *rig, unsigned int nth, unsigned int *last)
{
	unsigned int i, size, before = 0, id, links = 1 + below(rig->setup.max_chain);
	uint64_t address;

	*last = 0;
	for (i = 0; i < links; i++) {
		before += *last;
		size = SMALLEST_BUFFER + below(rig->setup.max_buffer - SMALLEST_BUFFER + 1);
		address = device_address(rig, below(DATA_AREAS)) + below(AREA_SIZE - size + 1);
		id = add_desc(&rig->queue, address, size,
			      VRING_DESC_F_WRITE | (i + 1 < links ? VRING_DESC_F_NEXT : 0));
		if (!i)
			add_head(&rig->queue, nth, id);
		*last = size;
	}
	return before;
}

/* Chains, and sizes of frames that fill them: one each, or with mergeable buffers one for several.
 */
static void add_buffers(struct rig *rig, unsigned int heads)
{
	unsigned int nth = 0, before, last, group, size;

	rig->frames = 0;
	while (nth < heads) {
		group = rig->setup.flags & MERGEABLE ? MIN(1 + below(4), heads - nth) : 1;
		before = add_chain(rig, nth++, &last);
		while (--group) {
			before += last;
			before += add_chain(rig, nth++, &last);
		}
		/* Mergeable buffers are taken as they are needed: a frame must reach the last. */
		if (rig->setup.flags & MERGEABLE)
			size = before + 1 + below(last);
		else
			size = 1 + below(before + last);
		rig->frame_size[rig->frames++] = MAX(size, SMALLEST_BUFFER);
	}
}

static void add_packets(struct rig *rig, unsigned int heads)
{
	unsigned int i, id;

	for (i = 0; i < heads; i++) {
		id = add_desc(&rig->queue, control_address(rig, PACKET_AT),
			      sizeof(struct virtio_vsock_hdr), 0);
		add_head(&rig->queue, i, id);
	}
}

static void add(struct rig *rig, unsigned int heads)
{
	if (rig->device->receives)
		add_buffers(rig, heads);
	else
		add_packets(rig, heads);
}

static void complete(struct rig *rig, struct queue *q)
{
	double deadline = now() + WAIT_SECONDS;

	for (;;) {
		quiesce(rig);
		if (__atomic_load_n(&q->used->idx, __ATOMIC_ACQUIRE) == q->published)
			break;
		if (rig->setup.flags & WITH_IOTLB)
			answer_iotlb_misses(rig);
		if (now() > deadline)
			fail("%u descriptors not used within %d s",
			     (uint16_t)(q->published - q->used->idx), WAIT_SECONDS);
	}
	/* What was used last may have been logged no earlier than it was published. */
	quiesce(rig);
	verdict->progress++;
}

/* What is to be received comes before the buffers for it, or after them. */
static void burst(struct rig *rig, unsigned int heads)
{
	bool early = below(2);

	add(rig, heads);
	if (rig->device->receives && early)
		rig->device->feed(rig, rig->frames);
	publish(&rig->queue, heads);
	if (rig->device->receives && !early)
		rig->device->feed(rig, rig->frames);
	complete(rig, &rig->queue);
	expect_burst(rig);
	if (rig->setup.flags & COMPARE_PAGES)
		expect_changed(rig);
	rig->descriptors += heads;
}

static unsigned int some_heads(struct rig *rig)
{
	unsigned int most = rig->queue.num / rig->setup.max_chain - 1;

	return 1 + below(MIN(most, rig->setup.max_burst));
}

/* Devices */

static void queue_init(struct rig *rig, struct queue *q, unsigned int index, unsigned int num,
		       unsigned int at, char *used)
{
	*q = (struct queue){
		.index = index,
		.num = num,
		.desc = (void *)(rig->control + at),
		.avail = (void *)(rig->control + (at == DESC_AT ? AVAIL_AT : at + 0x1000)),
		.used = (void *)used,
	};
}

/* Fills in the one packet that all the guest's buffers are. */
static void vsock_packet(struct rig *rig, uint16_t op, uint64_t to)
{
	struct virtio_vsock_hdr *packet = (void *)(rig->control + PACKET_AT);

	*packet = (struct virtio_vsock_hdr){
		.src_cid = rig->cid,
		.dst_cid = to,
		.src_port = packet->src_port,
		.dst_port = packet->dst_port,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = op,
		.buf_alloc = VSOCK_WINDOW,
		.fwd_cnt = rig->fed,
	};
}

static void vsock_say(struct rig *rig, uint16_t op)
{
	unsigned int id;

	vsock_packet(rig, op, VMADDR_CID_HOST);
	id = add_desc(&rig->second, control_address(rig, PACKET_AT),
		      sizeof(struct virtio_vsock_hdr), 0);
	add_head(&rig->second, 0, id);
	publish(&rig->second, 1);
	complete(rig, &rig->second);
}

static void vsock_run(struct rig *rig)
{
	uint64_t cid = 0x10000 + getpid();
	int running = 1, tries = 100;

	while (ioctl(rig->fd, VHOST_VSOCK_SET_GUEST_CID, &cid) < 0) {
		if (errno != EADDRINUSE || !tries--)
			fail("VHOST_VSOCK_SET_GUEST_CID %" PRIu64 ": %s", cid, strerror(errno));
		cid += 0x10000;
	}
	rig->cid = cid;
	queue_init(rig, &rig->second, !rig->device->queue, SECOND_NUM, SECOND_AT,
		   rig->control + SECOND_USED_AT);
	set_ring(rig, &rig->second, false);
	VHOST(rig, VHOST_VSOCK_SET_RUNNING, &running);
}

/* A packet to a host that is none: read, dropped and used, and nothing is said about it. */
static void vsock_tx_start(struct rig *rig)
{
	vsock_run(rig);
	vsock_packet(rig, VIRTIO_VSOCK_OP_RST, VMADDR_CID_HOST + 1);
}

static void vsock_call(struct rig *rig)
{
	struct sockaddr_vm guest = {
		.svm_family = AF_VSOCK,
		.svm_port = 1024,
		.svm_cid = rig->cid,
	};
	uint64_t space = VSOCK_WINDOW;
	int fd = must(socket(AF_VSOCK, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "vsock");

	must(setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &space, sizeof(space)),
	     "SO_VM_SOCKETS_BUFFER_MAX_SIZE");
	must(setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &space, sizeof(space)),
	     "SO_VM_SOCKETS_BUFFER_SIZE");
	if (connect(fd, (struct sockaddr *)&guest, sizeof(guest)) == 0 || errno != EINPROGRESS)
		fail("connect to the guest: %s", strerror(errno));
	rig->feeder = fd;
}

static void vsock_answer(struct rig *rig)
{
	struct virtio_vsock_hdr *answer = (void *)(rig->control + PACKET_AT);
	const struct virtio_vsock_hdr *call = (void *)(rig->data + data_page_at(rig, 0) * PAGE);
	unsigned int id;

	id = add_desc(&rig->queue, device_address(rig, 0), PAGE, VRING_DESC_F_WRITE);
	add_head(&rig->queue, 0, id);
	publish(&rig->queue, 1);
	complete(rig, &rig->queue);
	rig->queue.taken = rig->queue.published;
	answer->src_port = call->dst_port;
	answer->dst_port = call->src_port;
	vsock_say(rig, VIRTIO_VSOCK_OP_RESPONSE);
}

/* The host calls and the guest answers; from then on the host has much to send. */
static void vsock_rx_start(struct rig *rig)
{
	struct pollfd connected = {.events = POLLOUT};
	int error = 0;
	socklen_t size = sizeof(error);

	vsock_run(rig);
	vsock_call(rig);
	vsock_answer(rig);
	connected.fd = rig->feeder;
	if (poll(&connected, 1, WAIT_SECONDS * 1000) != 1)
		fail("no connection to the guest within %d s", WAIT_SECONDS);
	must(getsockopt(rig->feeder, SOL_SOCKET, SO_ERROR, &error, &size), "SO_ERROR");
	if (error)
		fail("connection to the guest: %s", strerror(error));
}

/* Bytes that differ from one frame to the next, so that memory does. */
static const char *frame_bytes(unsigned int size)
{
	static char bytes[0x10000];
	static unsigned char last;

	memset(bytes, ++last, size);
	return bytes;
}

/* Sockets that are full now are empty soon, if they lead to a device that works. */
static void feed_frame(struct rig *rig, unsigned int size, const void *to, socklen_t to_size)
{
	double deadline = now() + WAIT_SECONDS;
	const char *bytes = frame_bytes(size);
	ssize_t sent;

	for (;;) {
		sent = sendto(rig->feeder, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL, to, to_size);
		if (sent == (ssize_t)size)
			return;
		if (sent >= 0 || (errno != EAGAIN && errno != ENOBUFS))
			fail("sent %zd of %u bytes to the device: %s", sent, size, strerror(errno));
		if (now() > deadline)
			fail("the device took nothing within %d s", WAIT_SECONDS);
		quiesce(rig);
	}
}

static void vsock_rx_feed(struct rig *rig, unsigned int frames)
{
	unsigned int i, size;

	/* All that was sent so far has arrived. */
	if (rig->fed - rig->credited > VSOCK_WINDOW / 4) {
		vsock_say(rig, VIRTIO_VSOCK_OP_CREDIT_UPDATE);
		rig->credited = rig->fed;
	}
	for (i = 0; i < frames; i++) {
		size = rig->frame_size[i] - sizeof(struct virtio_vsock_hdr);
		feed_frame(rig, size, NULL, 0);
		rig->fed += size;
	}
}

static void net_rx_feed(struct rig *rig, unsigned int frames)
{
	unsigned int i;

	for (i = 0; i < frames; i++)
		feed_frame(rig, rig->frame_size[i] - VNET_HEADER, &rig->tap, sizeof(rig->tap));
}

static void silence_ipv6(const char *interface)
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/%s/disable_ipv6", interface);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, "1", 1) != 1)
		printf("# %s: %s\n", path, strerror(errno));
	close(fd);
}

/* A tap in a network namespace of its own: only this program sends there. */
static int tap_open(struct rig *rig, struct ifreq *interface)
{
	int header = VNET_HEADER, size = 64 << 20, on = 1, tap, control;

	if (unshare(CLONE_NEWNET) < 0)
		skip("no network namespace: %s", strerror(errno));
	tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (tap < 0)
		skip("/dev/net/tun: %s", strerror(errno));
	*interface = (struct ifreq){.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	must(ioctl(tap, TUNSETIFF, interface), "TUNSETIFF");
	must(ioctl(tap, TUNSETVNETHDRSZ, &header), "TUNSETVNETHDRSZ");
	silence_ipv6(interface->ifr_name);
	control = must(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), "packet socket");
	interface->ifr_mtu = TAP_MTU;
	must(ioctl(control, SIOCSIFMTU, interface), "SIOCSIFMTU");
	interface->ifr_flags = IFF_UP;
	must(ioctl(control, SIOCSIFFLAGS, interface), "SIOCSIFFLAGS");
	must(setsockopt(control, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)),
	     "SO_SNDBUFFORCE");
	must(setsockopt(control, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)),
	     "PACKET_QDISC_BYPASS");
	must(ioctl(control, SIOCGIFINDEX, interface), "SIOCGIFINDEX");
	rig->feeder = control;
	return tap;
}

static void net_rx_start(struct rig *rig)
{
	struct vhost_vring_file backend = {.index = rig->device->queue};
	struct ifreq interface;

	backend.fd = tap_open(rig, &interface);
	rig->tap = (struct sockaddr_ll){
		.sll_family = AF_PACKET,
		.sll_ifindex = interface.ifr_ifindex,
		.sll_protocol = htons(0x88b5), /* for experiments */
	};
	VHOST(rig, VHOST_NET_SET_BACKEND, &backend);
}

static void test_start(struct rig *rig)
{
	int run = 1;

	VHOST(rig, TEST_RUN, &run);
}

static const struct device devices[] = {
	{
		.name = "vsock-tx",
		.path = "/dev/vhost-vsock",
		.queue = 1,
		.iotlb = true,
		.start = vsock_tx_start,
	},
	{
		.name = "vsock-rx",
		.path = "/dev/vhost-vsock",
		.queue = 0,
		.receives = true,
		.iotlb = true,
		.start = vsock_rx_start,
		.feed = vsock_rx_feed,
	},
	{
		.name = "net-rx",
		.path = "/dev/vhost-net",
		.queue = 0,
		.receives = true,
		.logs_buffers = true,
		.batches = true,
		.iotlb = true,
		.mergeable = true,
		.start = net_rx_start,
		.feed = net_rx_feed,
	},
	{
		.name = "test",
		.path = "/dev/vhost-test",
		.queue = 0,
		.start = test_start,
	},
};

/* Starts a device; what it wrote before it was ready is taken out of the log. */
static struct rig *rig_start(const struct device *device, const struct setup *setup, bool logging)
{
	struct rig *rig = &the_rig;
	int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;

	rig->device = device;
	rig->setup = *setup;
	rig->fd = open(device->path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (rig->fd < 0)
		skip("%s: %s", device->path, strerror(errno));
	rig->control = must_map(CONTROL_SIZE, anonymous | MAP_POPULATE, -1);
	rig->used = must_map(USED_SIZE, anonymous | MAP_POPULATE, -1);
	rig->data = must_map(DATA_SIZE, anonymous | MAP_POPULATE, -1);
	rig->shadow = must_map(USED_SIZE + DATA_SIZE, anonymous, -1);
	log_create(rig);

	queue_init(rig, &rig->queue, device->queue, setup->num, DESC_AT,
		   rig->used + setup->used_offset);
	VHOST(rig, VHOST_SET_OWNER, NULL);
	set_memory(rig);
	if (logging)
		set_log_base(rig);
	set_features(rig, logging);
	if (setup->flags & WITH_IOTLB)
		iotlb_fill(rig);
	set_ring(rig, &rig->queue, logging);
	device->start(rig);
	quiesce(rig);
	memset(rig->log, 0, LOG_PAGES * PAGE);
	memcpy(rig->shadow, rig->used, USED_SIZE);
	memcpy(rig->shadow + USED_SIZE, rig->data, DATA_SIZE);
	return rig;
}

/* Cases: layout */

static void finish(struct rig *rig)
{
	check_no_strays(rig);
	if (!rig->known_missed)
		return;
	end(KSFT_XFAIL, "%" PRIu64 " written pages not marked: %s", rig->known_missed,
	    rig->setup.flags & UNLOGGED_BUFFERS ? "the device does not log its buffers"
						: "log_used() stops after the first IOTLB entry");
}

/* How many descriptors are used until a used element lies on two pages, or ends one. */
static unsigned int heads_to_border(const struct rig *rig)
{
	unsigned int heads = 0, slot, end_in_page;

	do {
		slot = (rig->queue.published + heads++) % rig->queue.num;
		end_in_page =
			(rig->setup.used_offset + offsetof(struct vring_used, ring[slot + 1])) %
			PAGE;
	} while (end_in_page >= sizeof(struct vring_used_elem) && heads < rig->queue.num);
	return heads;
}

/* Some rounds of the ring. What is on the border of two pages is the last to be written there. */
static void run_layout(struct rig *rig, const struct test *test)
{
	(void)test;
	while (rig->descriptors < 4 * rig->queue.num) {
		burst(rig, MIN(some_heads(rig), heads_to_border(rig)));
		check_log(rig);
	}
	finish(rig);
}

/* How many bits are set of those that a write would set. */
static unsigned int count_marked(const struct rig *rig, uint64_t gpa, uint64_t size)
{
	uint64_t page = gpa / PAGE, bit;
	unsigned int marked = 0;

	for (; size && page <= (gpa + size - 1) / PAGE; page++) {
		bit = page - first_bit_of_window(rig);
		marked += window(rig)[bit / LONG_BITS] >> bit % LONG_BITS & 1;
	}
	return marked;
}

/*
 * What is written lies at the beginning of the buffer, and is less than the pages of one long. But
 * with a device IOTLB the whole buffer is logged, by one range of several longs: then wholly.
 */
static void receive_large(struct rig *rig, uint64_t offset, uint64_t size)
{
	struct queue *q = &rig->queue;
	uint64_t first_page_left = PAGE - offset % PAGE;
	unsigned int slot = q->taken % q->num, marked, pages, id;
	uint32_t length;

	id = add_desc(q, LARGE_IOVA + offset, size, VRING_DESC_F_WRITE);
	add_head(q, 0, id);
	rig->frames = 1;
	rig->frame_size[0] = SMALLEST_BUFFER + below(2 * PAGE);
	rig->device->feed(rig, rig->frames);
	publish(q, 1);
	complete(rig, q);
	length = q->used->ring[slot].len;
	if (length != rig->frame_size[0])
		fail("%u bytes were used for a frame of %u", length, rig->frame_size[0]);
	expect_used_head(rig);
	expect_used_element(rig, slot, true);
	q->taken++;
	mark(rig, rig->want, LARGE_GPA + offset, length);
	mark(rig, rig->may, LARGE_GPA + offset, size);
	pages = 1 + (size - first_page_left + PAGE - 1) / PAGE;
	marked = count_marked(rig, LARGE_GPA + offset, size);
	if (marked > 1 + (length + PAGE - 1) / PAGE && marked != pages)
		fail("of a buffer of %u pages, %u are marked", pages, marked);
	check_log(rig);
}

static void run_large(struct rig *rig, const struct test *test)
{
	uint64_t offset, size;
	unsigned int i;

	(void)test;
	rig->large = must_map(LARGE_SIZE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1);
	set_memory(rig);
	iotlb_update(rig, LARGE_IOVA, rig->large, LARGE_SIZE);
	for (i = 0; i < 100; i++) {
		size = (LONG_BITS + below(2 * LONG_BITS)) * PAGE + below(PAGE);
		offset = below(LARGE_SIZE - size + 1);
		receive_large(rig, offset, size);
	}
	finish(rig);
}

/* A kick with nothing to do: notifications are switched off and on again, in the used ring. */
static void run_flags(struct rig *rig, const struct test *test)
{
	unsigned int i;

	(void)test;
	for (i = 0; i < 10; i++) {
		publish(&rig->queue, 0);
		quiesce(rig);
		if (rig->setup.flags & EVENT_INDEX)
			expect_event(rig);
		else
			expect_used_head(rig);
		check_log(rig);
	}
	finish(rig);
}

/* Migrations that are given up, and others after them. */
static void run_switch(struct rig *rig, const struct test *test)
{
	unsigned int i;

	(void)test;
	for (i = 0; i < 20; i++) {
		set_logging(rig, i % 2);
		burst(rig, some_heads(rig));
		if (!(i % 2))
			memset(rig->want, 0, sizeof(rig->want));
		check_log(rig);
	}
	finish(rig);
}

static void run_replace(struct rig *rig, const struct test *test)
{
	char *logs[2] = {rig->log, NULL};
	unsigned int i;

	(void)test;
	log_create(rig);
	logs[1] = rig->log;
	for (i = 0; i < 40; i++) {
		rig->log = logs[i % 2];
		set_log_base(rig);
		burst(rig, some_heads(rig));
		check_log(rig);
		rig->log = logs[(i + 1) % 2];
		check_no_strays(rig);
	}
	finish(rig);
}

/* Cases: faults on the log's pages */

struct fault {
	const char *name;
	bool shared;
	bool keeps; /* bits survive it */
	void (*begin)(struct rig *rig);
	void (*between)(struct rig *rig); /* bursts */
	void (*after)(struct rig *rig);	  /* each burst, before the look at the log */
	void (*meanwhile)(struct rig *rig);
	void (*done)(struct rig *rig);
};

/* A thread that does one thing again and again, until it is told to pause or to stop. */
struct helper {
	pthread_t thread;
	struct rig *rig;
	void (*again)(struct rig *rig);
	bool stop;
	bool pause;
	bool paused;
	uint64_t rounds;
};

static void helper_rest(struct helper *helper)
{
	__atomic_store_n(&helper->paused, true, __ATOMIC_RELEASE);
	while (__atomic_load_n(&helper->pause, __ATOMIC_ACQUIRE))
		sched_yield();
	__atomic_store_n(&helper->paused, false, __ATOMIC_RELEASE);
}

static void *helper_main(void *argument)
{
	struct helper *helper = argument;

	while (!__atomic_load_n(&helper->stop, __ATOMIC_RELAXED)) {
		if (__atomic_load_n(&helper->pause, __ATOMIC_ACQUIRE))
			helper_rest(helper);
		helper->again(helper->rig);
		helper->rounds++;
	}
	return NULL;
}

static void helper_start(struct helper *helper, struct rig *rig, void (*again)(struct rig *rig))
{
	*helper = (struct helper){.rig = rig, .again = again};
	errno = pthread_create(&helper->thread, NULL, helper_main, helper);
	if (errno)
		fail("pthread_create: %s", strerror(errno));
}

/* The thread is at rest when this returns. */
static void helper_pause(struct helper *helper)
{
	__atomic_store_n(&helper->pause, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&helper->paused, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void helper_resume(struct helper *helper)
{
	__atomic_store_n(&helper->pause, false, __ATOMIC_RELEASE);
	while (__atomic_load_n(&helper->paused, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void helper_stop(struct helper *helper)
{
	__atomic_store_n(&helper->stop, true, __ATOMIC_RELAXED);
	pthread_join(helper->thread, NULL);
}

/* The faults' pages of the log: the two of the used ring, and those of the buffers after them. */
static unsigned int fault_pages(const struct rig *rig)
{
	return rig->device->logs_buffers ? WINDOW_PAGES : 2;
}

static size_t fault_size(const struct rig *rig)
{
	return fault_pages(rig) * PAGE;
}

static char *fault_begin(const struct rig *rig)
{
	return (char *)window(rig);
}

static void drop(struct rig *rig)
{
	must(madvise(fault_begin(rig), fault_size(rig), MADV_DONTNEED), "MADV_DONTNEED");
}

/* What is only read gets the zero page, or the file's page, and nothing that can be written. */
static void read_pages(struct rig *rig)
{
	unsigned int i;

	for (i = 0; i < fault_pages(rig); i++)
		(void)*(volatile char *)(fault_begin(rig) + i * PAGE);
}

static void drop_and_read(struct rig *rig)
{
	drop(rig);
	read_pages(rig);
}

static void protect(struct rig *rig, int protection)
{
	must(mprotect(fault_begin(rig), fault_size(rig), protection), "mprotect");
}

static void protect_and_release(struct rig *rig)
{
	protect(rig, PROT_READ);
	read_pages(rig);
	protect(rig, PROT_READ | PROT_WRITE);
}

static void punch(struct rig *rig)
{
	must(fallocate(rig->log_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		       WINDOW_FIRST * PAGE, fault_size(rig)),
	     "fallocate");
}

/* A child that keeps the pages from being this process's own, and sees whether its copy is. */
static pid_t sharer;
static int sharer_pipe = -1;

static __noreturn void sharer_main(struct rig *rig, int release)
{
	unsigned int i;
	char byte;

	if (read(release, &byte, 1) < 0)
		_exit(2);
	for (i = 0; i < WINDOW_WORDS; i++)
		if (window(rig)[i])
			_exit(1);
	_exit(0);
}

static void sharer_end(struct rig *rig)
{
	int status;

	(void)rig;
	if (sharer_pipe < 0)
		return;
	close(sharer_pipe);
	sharer_pipe = -1;
	must(waitpid(sharer, &status, 0), "waitpid");
	if (status)
		fail("bits were set in a child's copy of the log (status %#x)", status);
}

static void share(struct rig *rig)
{
	int ends[2];

	sharer_end(rig);
	must(pipe(ends), "pipe");
	sharer = must(fork(), "fork");
	if (!sharer) {
		close(ends[1]);
		sharer_main(rig, ends[0]);
	}
	close(ends[0]);
	sharer_pipe = ends[1];
}

static void fork_again(struct rig *rig)
{
	pid_t child = must(fork(), "fork");

	(void)rig;
	if (!child)
		_exit(0);
	must(waitpid(child, NULL, 0), "waitpid");
}

/* Swap */

static uint64_t pages_given, pages_gone, pages_unmapped;
static int pagemap = -1;

static void swap_begin(struct rig *rig)
{
	char line[256];
	unsigned int lines = 0;
	FILE *swaps = fopen("/proc/swaps", "re");

	(void)rig;
	if (!swaps)
		skip("/proc/swaps: %s", strerror(errno));
	while (fgets(line, sizeof(line), swaps))
		lines++;
	fclose(swaps);
	/* The first line is a heading. */
	if (lines < 2)
		skip("no swap is in use");
	pagemap = must(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), "/proc/self/pagemap");
}

static void page_out(struct rig *rig)
{
	must(madvise(fault_begin(rig), fault_size(rig), MADV_PAGEOUT), "MADV_PAGEOUT");
}

/* What is no longer mapped may still be in the swap cache, on its way out or kept. */
static void page_out_and_look(struct rig *rig)
{
	uint64_t entries[WINDOW_PAGES];
	unsigned char present[WINDOW_PAGES];
	off_t at = (uintptr_t)fault_begin(rig) / PAGE * sizeof(*entries);
	unsigned int i, pages = fault_pages(rig);
	ssize_t size = pages * sizeof(*entries);

	page_out(rig);
	if (pread(pagemap, entries, size, at) != size)
		fail("/proc/self/pagemap: %s", strerror(errno));
	must(mincore(fault_begin(rig), fault_size(rig), present), "mincore");
	for (i = 0; i < pages; i++) {
		pages_unmapped += !(entries[i] >> 63);
		pages_gone += !(entries[i] >> 63) && !(present[i] & 1);
	}
	pages_given += pages;
}

static void swap_done(struct rig *rig)
{
	(void)rig;
	printf("# of %" PRIu64 " pages, %" PRIu64 " were unmapped, %" PRIu64
	       " of them out of memory, when a burst began\n",
	       pages_given, pages_unmapped, pages_gone);
	if (!pages_unmapped)
		skip("no page of the log was paged out");
}

/* userfaultfd */

static int uffd = -1;

static void uffd_register(struct rig *rig, uint64_t mode, uint64_t features)
{
	struct uffdio_api api = {.api = UFFD_API, .features = features};
	struct uffdio_register range = {
		.range = {(uintptr_t)fault_begin(rig), fault_size(rig)},
		.mode = mode,
	};

	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (uffd < 0)
		skip("userfaultfd: %s", strerror(errno));
	if (ioctl(uffd, UFFDIO_API, &api) < 0 || ioctl(uffd, UFFDIO_REGISTER, &range) < 0)
		skip("userfaultfd with mode %#" PRIx64 ": %s", mode, strerror(errno));
}

static void uffd_begin_missing(struct rig *rig)
{
	uffd_register(rig, UFFDIO_REGISTER_MODE_MISSING, 0);
}

static void uffd_begin_protected(struct rig *rig)
{
	uffd_register(rig, UFFDIO_REGISTER_MODE_WP, UFFD_FEATURE_PAGEFAULT_FLAG_WP);
}

static void uffd_give_page(uintptr_t address)
{
	struct uffdio_zeropage zero = {.range = {address, PAGE}};

	if (ioctl(uffd, UFFDIO_ZEROPAGE, &zero) < 0 && errno != EEXIST)
		fail("userfaultfd gives no page: %s", strerror(errno));
}

static void uffd_set_protection(uintptr_t address, size_t size, uint64_t mode)
{
	struct uffdio_writeprotect protection = {.range = {address, size}, .mode = mode};

	must(ioctl(uffd, UFFDIO_WRITEPROTECT, &protection), "UFFDIO_WRITEPROTECT");
}

static void uffd_protect(struct rig *rig)
{
	uffd_set_protection((uintptr_t)fault_begin(rig), fault_size(rig),
			    UFFDIO_WRITEPROTECT_MODE_WP);
}

/* The look at the log does not have to wait for the thread, neither here nor there. */
static void uffd_release(struct rig *rig)
{
	uffd_set_protection((uintptr_t)fault_begin(rig), fault_size(rig), 0);
}

static void uffd_give_all(struct rig *rig)
{
	unsigned int i;

	for (i = 0; i < fault_pages(rig); i++)
		uffd_give_page((uintptr_t)fault_begin(rig) + i * PAGE);
}

/* Somebody waits for the page, maybe the device's worker; the bound only lets the thread end. */
static void uffd_serve(struct rig *rig)
{
	struct pollfd ready = {.fd = uffd, .events = POLLIN};
	struct uffd_msg message;
	uintptr_t address;

	(void)rig;
	if (poll(&ready, 1, 100) < 1 || read(uffd, &message, sizeof(message)) != sizeof(message))
		return;
	if (message.event != UFFD_EVENT_PAGEFAULT)
		fail("userfaultfd event %u", message.event);
	address = message.arg.pagefault.address & ~(uint64_t)(PAGE - 1);
	if (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP)
		uffd_set_protection(address, PAGE, 0);
	else
		uffd_give_page(address);
}

static const struct fault faults[] = {
	{.name = "log page dropped", .between = drop},
	{.name = "log page dropped again and again", .shared = true, .meanwhile = drop},
	{.name = "log page is the zero page", .between = drop_and_read},
	{.name = "log page read-only, then writable", .between = protect_and_release},
	{.name = "log page copy-on-write after fork", .between = share, .done = sharer_end},
	{.name = "log page copy-on-write again and again", .meanwhile = fork_again},
	{.name = "hole punched into a shared log", .shared = true, .between = punch},
	{
		.name = "log page swapped out",
		.keeps = true,
		.begin = swap_begin,
		.between = page_out_and_look,
		.done = swap_done,
	},
	{
		.name = "page of a shared log swapped out",
		.shared = true,
		.keeps = true,
		.begin = swap_begin,
		.between = page_out_and_look,
		.done = swap_done,
	},
	{
		.name = "log page swapped out again and again",
		.keeps = true,
		.begin = swap_begin,
		.between = page_out_and_look,
		.meanwhile = page_out,
		.done = swap_done,
	},
	{
		.name = "log page missing for userfaultfd",
		.begin = uffd_begin_missing,
		.between = drop,
		.after = uffd_give_all,
		.meanwhile = uffd_serve,
	},
	{
		.name = "log page write-protected by userfaultfd",
		.keeps = true,
		.begin = uffd_begin_protected,
		.between = uffd_protect,
		.after = uffd_release,
		.meanwhile = uffd_serve,
	},
};

/*
 * A fault before each burst, or all the time. Where bits survive it, they are left in the log now
 * and then, so that the fault finds some.
 */
static void run_fault(struct rig *rig, const struct test *test)
{
	const struct fault *fault = test->fault;
	struct helper helper;

	if (fault->begin)
		fault->begin(rig);
	if (fault->meanwhile)
		helper_start(&helper, rig, fault->meanwhile);
	while (rig->descriptors < option_count) {
		if (fault->between)
			fault->between(rig);
		burst(rig, some_heads(rig));
		if (fault->after)
			fault->after(rig);
		if (!fault->keeps || below(2))
			check_log(rig);
	}
	check_no_strays(rig);
	if (fault->meanwhile)
		helper_stop(&helper);
	if (fault->done)
		fault->done(rig);
	finish(rig);
}

/* Cases: a worker that is held in a log write */

/*
 * Nobody gives the log the page that the worker waits for until a command has run: what it does,
 * such as patching the kernel, it does to a worker that sleeps within a log write.
 */
static void run_held(struct rig *rig, const struct test *test)
{
	struct pollfd missing = {.events = POLLIN};
	int status;

	(void)test;
	uffd_begin_missing(rig);
	drop(rig);
	add(rig, 1);
	if (rig->device->receives)
		rig->device->feed(rig, rig->frames);
	publish(&rig->queue, 1);
	missing.fd = uffd;
	if (poll(&missing, 1, WAIT_SECONDS * 1000) != 1)
		fail("no log write within %d s", WAIT_SECONDS);
	status = system(option_while_held);
	uffd_give_all(rig);
	if (status)
		fail("the command ended with wait status %#x", status);
	complete(rig, &rig->queue);
	expect_burst(rig);
	finish(rig);
}

/* Cases: a log that cannot be written */

/* From where on; the used ring has pages on both sides of it. */
#define UNWRITABLE_PAGE (WINDOW_FIRST + 1)
#define UNWRITABLE_SIZE ((WINDOW_FIRST + WINDOW_PAGES - UNWRITABLE_PAGE) * PAGE)

static void make_read_only(struct rig *rig, bool on)
{
	must(mprotect(rig->log + UNWRITABLE_PAGE * PAGE, UNWRITABLE_SIZE,
		      on ? PROT_READ : PROT_READ | PROT_WRITE),
	     "mprotect");
}

static void make_inaccessible(struct rig *rig, bool on)
{
	must(mprotect(rig->log + UNWRITABLE_PAGE * PAGE, UNWRITABLE_SIZE,
		      on ? PROT_NONE : PROT_READ | PROT_WRITE),
	     "mprotect");
}

static void make_shorter(struct rig *rig, bool on)
{
	must(ftruncate(rig->log_file, (on ? UNWRITABLE_PAGE : LOG_PAGES) * PAGE), "ftruncate");
}

/* From the line "failed N" of the file that was named, if one was. */
static uint64_t failures_counted(void)
{
	FILE *file = option_failures ? fopen(option_failures, "re") : NULL;
	uint64_t number = 0;
	char line[256];
	bool found = false;

	if (!option_failures)
		return 0;
	if (!file)
		fail("%s: %s", option_failures, strerror(errno));
	while (!found && fgets(line, sizeof(line), file))
		found = sscanf(line, "failed %" SCNu64, &number) == 1;
	fclose(file);
	if (!found)
		fail("%s counts nothing that failed", option_failures);
	return number;
}

static int kernel_messages(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		lseek(fd, 0, SEEK_END);
	return fd;
}

static bool kernel_complained(int messages)
{
	char record[8192];
	bool found = false;
	ssize_t size;

	for (;;) {
		size = read(messages, record, sizeof(record) - 1);
		/* EPIPE stands for records that were overwritten before they were read. */
		if (size < 0 && errno == EPIPE)
			continue;
		if (size <= 0)
			return found;
		record[size] = 0;
		found |= strstr(record, "vhost") && strstr(record, "log");
	}
}

/* Takes what was expected where no log could be written; returns how much that was. */
static unsigned int forget_unwritable(struct rig *rig)
{
	size_t first = (UNWRITABLE_PAGE - WINDOW_FIRST) * PAGE / sizeof(long);
	unsigned int i, lost = 0;

	for (i = first; i < WINDOW_WORDS; i++) {
		lost += __builtin_popcountl(rig->want[i]);
		if (window(rig)[i])
			fail("a bit is set on a page of the log that was not writable");
		rig->want[i] = 0;
	}
	return lost;
}

static void run_unwritable(struct rig *rig, void (*make_unwritable)(struct rig *rig, bool on))
{
	uint64_t failures = failures_counted();
	int messages = kernel_messages();
	unsigned int i, lost;

	make_unwritable(rig, true);
	for (i = 0; i < 8; i++)
		burst(rig, some_heads(rig));
	make_unwritable(rig, false);
	lost = forget_unwritable(rig);
	check_no_strays(rig);
	if (!lost)
		fail("nothing was written whose mark could be lost");

	failures = failures_counted() - failures;
	if (failures || kernel_complained(messages)) {
		printf("# %u dirty pages lost, reported (counted: %" PRIu64 ")\n", lost, failures);
		return;
	}
	end(option_expect_report ? KSFT_FAIL : KSFT_XFAIL,
	    "%u dirty pages lost, and the kernel says nothing", lost);
}

static void run_read_only(struct rig *rig, const struct test *test)
{
	(void)test;
	run_unwritable(rig, make_read_only);
}

static void run_inaccessible(struct rig *rig, const struct test *test)
{
	(void)test;
	run_unwritable(rig, make_inaccessible);
}

static void run_shorter(struct rig *rig, const struct test *test)
{
	(void)test;
	run_unwritable(rig, make_shorter);
}

/* Cases: others write the log at the same time */

/*
 * Somebody who sets and clears bits of the byte that the device sets its bit in, and who notices
 * when a bit of his is not as he left it: an update that is not atomic takes one back. The window
 * for that is a few instructions wide, so both sides do nothing else.
 */
struct neighbour {
	pthread_t thread;
	unsigned long *word;
	unsigned int bit; /* of the word */
	bool bytewise;
	bool stop;
	uint64_t rounds;
	uint64_t lost;
	uint64_t came_back;
};

static unsigned long neighbour_set(struct neighbour *n)
{
	unsigned char *byte = (unsigned char *)n->word + n->bit / 8;

	if (n->bytewise)
		return __atomic_fetch_or(byte, 1U << n->bit % 8, __ATOMIC_SEQ_CST) >> n->bit % 8;
	return __atomic_fetch_or(n->word, 1UL << n->bit, __ATOMIC_SEQ_CST) >> n->bit;
}

static unsigned long neighbour_clear(struct neighbour *n)
{
	unsigned char *byte = (unsigned char *)n->word + n->bit / 8;

	if (n->bytewise)
		return __atomic_fetch_and(byte, ~(1U << n->bit % 8), __ATOMIC_SEQ_CST) >>
		       n->bit % 8;
	return __atomic_fetch_and(n->word, ~(1UL << n->bit), __ATOMIC_SEQ_CST) >> n->bit;
}

static void *neighbour_main(void *argument)
{
	struct neighbour *n = argument;

	while (!__atomic_load_n(&n->stop, __ATOMIC_RELAXED)) {
		n->came_back += neighbour_set(n) & 1;
		n->lost += !(neighbour_clear(n) & 1);
		n->rounds++;
	}
	return NULL;
}

static void neighbours_start(struct rig *rig, struct neighbour *all, unsigned int number)
{
	uint64_t device_bit = rig->setup.used_gpa / PAGE - first_bit_of_window(rig);
	unsigned int i;

	rig->foreign_word = &window(rig)[device_bit / LONG_BITS];
	for (i = 0; i < number; i++) {
		all[i] = (struct neighbour){
			.word = rig->foreign_word,
			.bit = device_bit % LONG_BITS ^ (i + 1),
			.bytewise = i % 2,
		};
		rig->foreign |= 1UL << all[i].bit;
	}
	for (i = 0; i < number; i++) {
		errno = pthread_create(&all[i].thread, NULL, neighbour_main, &all[i]);
		if (errno)
			fail("pthread_create: %s", strerror(errno));
	}
}

static unsigned int cpus(void)
{
	cpu_set_t set;

	must(sched_getaffinity(0, sizeof(set), &set), "sched_getaffinity");
	return CPU_COUNT(&set);
}

/* One neighbour for each processor that the device's worker does not need; a byte has 8 bits. */
static void run_neighbours(struct rig *rig, const struct test *test)
{
	struct neighbour all[7];
	unsigned int i, number = MIN(cpus() - 1, ARRAY_SIZE(all));
	uint64_t rounds = 0, lost = 0, came_back = 0;

	(void)test;
	if (!number)
		skip("one processor: nothing happens at the same time");
	neighbours_start(rig, all, number);
	while (rig->descriptors < option_count) {
		burst(rig, some_heads(rig));
		check_log(rig);
	}
	for (i = 0; i < number; i++) {
		__atomic_store_n(&all[i].stop, true, __ATOMIC_RELAXED);
		pthread_join(all[i].thread, NULL);
		rounds += all[i].rounds;
		lost += all[i].lost;
		came_back += all[i].came_back;
	}
	printf("# %u neighbours set and cleared their bits %" PRIu64 " times\n", number, rounds);
	if (lost || came_back)
		fail("%" PRIu64 " of the neighbours' bits were lost, %" PRIu64 " came back", lost,
		     came_back);
	finish(rig);
}

/* The monitor: takes bits and copies the pages that they stand for. */
static void copy_page(struct rig *rig, uint64_t gpa)
{
	uint64_t used = gpa - rig->setup.used_gpa;
	unsigned int area;

	if (used < USED_SIZE) {
		memcpy(rig->shadow + used, rig->used + used, PAGE);
		return;
	}
	for (area = 0; area < DATA_AREAS; area++)
		if (gpa - DATA_GPA(area) < AREA_SIZE)
			break;
	if (area == DATA_AREAS)
		fail("page %#" PRIx64 " is marked, far from all that was written", gpa);
	gpa = area * AREA_SIZE + (gpa - DATA_GPA(area));
	memcpy(rig->shadow + USED_SIZE + gpa, rig->data + gpa, PAGE);
}

static void harvest_and_copy(struct rig *rig)
{
	unsigned long bits;
	unsigned int i;

	for (i = 0; i < fault_size(rig) / sizeof(long); i++)
		for (bits = harvest_word(rig, &window(rig)[i]); bits; bits &= bits - 1)
			copy_page(rig, address_of(rig, i, bits));
}

static unsigned int stale_pages(const struct rig *rig)
{
	unsigned int page, stale = 0;

	for (page = 0; page < USED_PAGES; page++)
		stale += !!memcmp(rig->shadow + page * PAGE, rig->used + page * PAGE, PAGE);
	for (page = 0; rig->device->logs_buffers && page < DATA_PAGES; page++)
		stale += !!memcmp(rig->shadow + USED_SIZE + page * PAGE, rig->data + page * PAGE,
				  PAGE);
	return stale;
}

/*
 * Whatever is written to a page after it was copied is marked after it was harvested. What is
 * written last shows it, as nothing later marks that page: bursts are short, and fewer will do.
 */
static void run_harvest(struct rig *rig, const struct test *test)
{
	struct helper monitor;
	unsigned int stale;

	(void)test;
	helper_start(&monitor, rig, harvest_and_copy);
	while (rig->descriptors < MAX(option_count / 8, 500U)) {
		burst(rig, some_heads(rig));
		helper_pause(&monitor);
		harvest_and_copy(rig);
		stale = stale_pages(rig);
		if (stale)
			fail("%u pages differ from the monitor's copy after %" PRIu64
			     " descriptors",
			     stale, rig->descriptors);
		helper_resume(&monitor);
	}
	helper_stop(&monitor);
	printf("# the log was harvested %" PRIu64 " times\n", monitor.rounds);
}

/* All cases. Sizes of 0 stand for what full_setup() says. */

/* The ring of 1024 begins on a log's last page; element 511 lies on that one and on the next. */
#define USED_GPA_AT_BORDER (WINDOW_GPA + SPAN - PAGE)
#define ON_TWO_LOG_PAGES   .used_gpa = USED_GPA_AT_BORDER, .used_offset = PAGE - 1024
#define BIG_BUFFERS	   .max_buffer = 15000, .max_burst = 16

static const struct test tests[] = {
	{.name = "used ring in one page", .setup.flags = COMPARE_PAGES, .run = run_layout},
	{
		.name = "used ring over several pages",
		.setup = {.num = 4096, .flags = COMPARE_PAGES},
		.run = run_layout,
	},
	{
		.name = "used write that spans two log pages",
		.setup = {.num = 1024, .flags = COMPARE_PAGES, .used_gpa = USED_GPA_AT_BORDER},
		.run = run_layout,
	},
	{
		.name = "log at an odd address",
		.setup = {.num = 1024, .used_gpa = USED_GPA_AT_BORDER, .log_skew = 3},
		.run = run_layout,
	},
	{
		/* 4 + 256 * 8 bytes from there, the event index is alone on the next page. */
		.name = "event index",
		.setup = {.flags = EVENT_INDEX | COMPARE_PAGES, .used_offset = 2044},
		.run = run_layout,
	},
	{
		/* Where notifications are not switched by flags, only the index marks its page. */
		.name = "event index, used ring over several pages",
		.setup = {.num = 1024, .flags = EVENT_INDEX | COMPARE_PAGES},
		.run = run_layout,
	},
	{.name = "flags without a descriptor", .senders = true, .run = run_flags},
	{.name = "logging switched on and off", .run = run_switch},
	{.name = "log replaced", .run = run_replace},
	{
		.name = "buffers of several pages, chained",
		.receivers = true,
		.setup = {.flags = COMPARE_PAGES | UNLOGGED_BUFFERS, .max_chain = 4, BIG_BUFFERS},
		.run = run_layout,
	},
	{
		.name = "mergeable buffers",
		.needs = MERGEABLE,
		.setup = {.flags = COMPARE_PAGES | MERGEABLE, BIG_BUFFERS},
		.run = run_layout,
	},
	{
		.name = "device IOTLB",
		.needs = WITH_IOTLB,
		.setup = {.flags = WITH_IOTLB | COMPARE_PAGES, .max_chain = 2, BIG_BUFFERS},
		.run = run_layout,
	},
	{
		.name = "device IOTLB, entries on demand",
		.needs = WITH_IOTLB,
		.receivers = true,
		.setup = {.flags = WITH_IOTLB | ENTRIES_ON_DEMAND | COMPARE_PAGES, BIG_BUFFERS},
		.run = run_layout,
	},
	{
		/* Of the devices that log buffers. */
		.name = "device IOTLB, buffers of more pages than a long has bits",
		.needs = WITH_IOTLB | MERGEABLE,
		.setup = {.flags = WITH_IOTLB},
		.run = run_large,
	},
	{
		.name = "device IOTLB, one HVA at two GPAs",
		.needs = WITH_IOTLB,
		.setup = {.num = 1024, .flags = WITH_IOTLB | TWO_GPAS, BIG_BUFFERS},
		.run = run_layout,
	},
	{
		.name = "device IOTLB, used ring over several entries",
		.needs = WITH_IOTLB,
		.setup = {.num = 1024, .flags = WITH_IOTLB | ENTRY_PER_USED_PAGE | COMPARE_PAGES},
		.run = run_layout,
	},
	{.name = "log page not writable", .setup = {ON_TWO_LOG_PAGES}, .run = run_read_only},
	{.name = "log page not accessible", .setup = {ON_TWO_LOG_PAGES}, .run = run_inaccessible},
	{
		.name = "log file too short",
		.setup = {.flags = SHARED_LOG, ON_TWO_LOG_PAGES},
		.run = run_shorter,
	},
	{.name = "neighbouring bits change meanwhile", .run = run_neighbours},
	{
		.name = "harvested meanwhile",
		.setup = {.num = 1024, .used_gpa = USED_GPA_AT_BORDER, .max_burst = 4},
		.run = run_harvest,
	},
};

static const struct test held_test = {
	.name = "command while a worker is in a log write",
	.setup = {ON_TWO_LOG_PAGES},
	.run = run_held,
};

static struct setup full_setup(const struct setup *wanted)
{
	struct setup setup = *wanted;

	setup.num = setup.num ?: 256;
	setup.used_gpa = setup.used_gpa ?: USED_GPA;
	setup.max_chain = setup.max_chain ?: 1;
	setup.max_buffer = setup.max_buffer ?: 4 * SMALLEST_BUFFER;
	setup.max_burst = setup.max_burst ?: 255;
	return setup;
}

static bool applies(const struct test *test, const struct device *device)
{
	if (test->senders && device->receives)
		return false;
	if (test->receivers && !device->receives)
		return false;
	if ((test->needs & WITH_IOTLB) && !device->iotlb)
		return false;
	return !(test->needs & MERGEABLE) || device->mergeable;
}

static void run_case(const struct device *device, const struct test *test)
{
	struct setup setup = full_setup(&test->setup);

	test->run(rig_start(device, &setup, true), test);
}

/* Benchmark */

#define BENCH_BURST  128U
#define BENCH_WARMUP 20U

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* From the kick until the worker is at rest, all that it needs being there before. */
static double time_burst(struct rig *rig)
{
	double begin;

	add(rig, BENCH_BURST);
	if (rig->device->receives)
		rig->device->feed(rig, rig->frames);
	quiesce(rig);
	begin = now();
	publish(&rig->queue, BENCH_BURST);
	quiesce(rig);
	begin = now() - begin;
	complete(rig, &rig->queue);
	return begin;
}

static void bench_row(const struct device *device, bool logging)
{
	struct setup setup = full_setup(&(struct setup){});
	unsigned int i, bursts = MAX(option_count / BENCH_BURST, 1U);
	double *took = calloc(bursts, sizeof(*took)), sum = 0;
	struct rig *rig = rig_start(device, &setup, logging);

	if (!took)
		fail("no memory for %u figures", bursts);
	for (i = 0; i < BENCH_WARMUP + bursts; i++) {
		took[i < BENCH_WARMUP ? 0 : i - BENCH_WARMUP] = time_burst(rig);
		expect_burst(rig);
		if (!logging)
			memset(rig->want, 0, sizeof(rig->want));
		check_log(rig);
	}
	for (i = 0; i < bursts; i++)
		sum += took[i];
	qsort(took, bursts, sizeof(*took), compare_doubles);
	printf("bench device=%s logging=%s descriptors=%u ns_median=%.1f ns_mean=%.1f ns_min=%.1f\n",
	       device->name, logging ? "on" : "off", bursts * BENCH_BURST,
	       took[bursts / 2] * 1e9 / BENCH_BURST, sum * 1e9 / bursts / BENCH_BURST,
	       took[0] * 1e9 / BENCH_BURST);
}

static void bench_off(const struct device *device, const struct test *test)
{
	(void)test;
	bench_row(device, false);
}

static void bench_on(const struct device *device, const struct test *test)
{
	(void)test;
	bench_row(device, true);
}

/* Running cases, each in a process */

static unsigned int planned, passed, failed, xfailed, skipped;

/* Ends a case that has not got further for a long time, however long it may take in all. */
static int wait_for_case(pid_t pid, int *status)
{
	struct timespec second = {.tv_sec = 1};
	double since = now();
	uint64_t progress = 0;
	bool killed = false;
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	while (waitpid(pid, status, WNOHANG) == 0) {
		sigtimedwait(&child, NULL, &second);
		if (__atomic_load_n(&verdict->progress, __ATOMIC_RELAXED) != progress) {
			progress = verdict->progress;
			since = now();
		}
		if (now() - since < STUCK_SECONDS)
			continue;
		if (killed)
			return -1;
		kill(pid, SIGKILL);
		killed = true;
		since = now();
	}
	return killed ? -1 : 0;
}

static int case_in_process(const struct device *device, const struct test *test,
			   void (*run)(const struct device *device, const struct test *test))
{
	int status;
	pid_t pid;

	*verdict = (struct verdict){};
	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		snprintf(verdict->reason, sizeof(verdict->reason), "fork: %s", strerror(errno));
		return KSFT_FAIL;
	}
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		random_state = option_seed * 0x9e3779b97f4a7c15 | 1;
		run(device, test);
		end(KSFT_PASS, "%s", "");
	}
	if (wait_for_case(pid, &status) < 0) {
		snprintf(verdict->reason, sizeof(verdict->reason), "no progress for %d s",
			 STUCK_SECONDS);
		return KSFT_FAIL;
	}
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	snprintf(verdict->reason, sizeof(verdict->reason), "ended by signal %d", WTERMSIG(status));
	return KSFT_FAIL;
}

static void report(unsigned int number, const char *device, const char *name, int result)
{
	const char *comma = *verdict->reason ? ": " : "";

	switch (result) {
	case KSFT_PASS:
		passed++;
		printf("ok %u %s: %s\n", number, device, name);
		break;
	case KSFT_XFAIL:
		xfailed++;
		printf("ok %u %s: %s # XFAIL %s\n", number, device, name, verdict->reason);
		break;
	case KSFT_SKIP:
		skipped++;
		printf("ok %u %s: %s # SKIP %s\n", number, device, name, verdict->reason);
		break;
	default:
		failed++;
		printf("not ok %u %s: %s%s%s\n", number, device, name, comma, verdict->reason);
	}
}

static bool chosen(const struct device *device, const struct test *test)
{
	if (option_device && strcmp(option_device, device->name))
		return false;
	if (option_only && !strstr(test->name, option_only))
		return false;
	return applies(test, device);
}

static void visit_faults(const struct device *device,
			 void (*visit)(const struct device *device, const struct test *test))
{
	struct test fault_test;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(faults); i++) {
		fault_test = (struct test){
			.name = faults[i].name,
			.setup = {.flags = faults[i].shared ? SHARED_LOG : 0, ON_TWO_LOG_PAGES},
			.run = run_fault,
			.fault = &faults[i],
		};
		if (chosen(device, &fault_test))
			visit(device, &fault_test);
	}
}

/* Calls @visit for each case that was asked for. */
static void visit_cases(void (*visit)(const struct device *device, const struct test *test))
{
	const struct device *device;
	unsigned int i;

	for (device = devices; device < devices + ARRAY_SIZE(devices); device++) {
		if (option_while_held) {
			if (chosen(device, &held_test))
				visit(device, &held_test);
			continue;
		}
		for (i = 0; i < ARRAY_SIZE(tests); i++)
			if (chosen(device, &tests[i]))
				visit(device, &tests[i]);
		visit_faults(device, visit);
	}
}

static void count_case(const struct device *device, const struct test *test)
{
	(void)device;
	(void)test;
	planned++;
}

static void visit_case(const struct device *device, const struct test *test)
{
	unsigned int number = passed + failed + xfailed + skipped + 1;

	report(number, device->name, test->name, case_in_process(device, test, run_case));
}

static void visit_bench(const struct device *device)
{
	void (*rows[])(const struct device *, const struct test *) = {bench_off, bench_on};
	unsigned int i;
	int result;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		result = case_in_process(device, NULL, rows[i]);
		passed += result == KSFT_PASS;
		failed += result == KSFT_FAIL;
		if (result != KSFT_PASS)
			printf("# %s: %s\n", device->name, verdict->reason);
	}
}

static int run_bench(void)
{
	const struct device *device;

	for (device = devices; device < devices + ARRAY_SIZE(devices); device++)
		if (!option_device || !strcmp(option_device, device->name))
			visit_bench(device);
	if (failed)
		return KSFT_FAIL;
	return passed ? KSFT_PASS : KSFT_SKIP;
}

static int run_tests(void)
{
	visit_cases(count_case);
	printf("TAP version 13\n1..%u\n", planned);
	visit_cases(visit_case);
	printf("# Totals: pass:%u fail:%u xfail:%u xpass:0 skip:%u error:0\n", passed, failed,
	       xfailed, skipped);
	if (failed)
		return KSFT_FAIL;
	return passed + xfailed ? KSFT_PASS : KSFT_SKIP;
}

static void usage(FILE *to)
{
	fprintf(to,
		"usage: vhost_dirty_log [OPTION]...\n"
		"  --count=N          descriptors for each kind of fault, and of a benchmark (%" PRIu64
		")\n"
		"  --device=NAME      vsock-tx, vsock-rx, net-rx or test only\n"
		"  --only=TEXT        cases with TEXT in their name\n"
		"  --seed=N           of the random numbers\n"
		"  --failures=FILE    counts log writes that failed, in a line \"failed N\"\n"
		"  --expect-report    a failed log write of which the kernel says nothing is a failure\n"
		"  --while-held=COMMAND   another case instead: run COMMAND, which must succeed, while\n"
		"                     the worker waits in a log write for a page of the log\n"
		"  --bench            measure what a descriptor costs, with logging and without\n",
		option_count);
}

static const char *device_argument(const char *name)
{
	const struct device *device;

	for (device = devices; device < devices + ARRAY_SIZE(devices); device++)
		if (!strcmp(name, device->name))
			return name;
	fprintf(stderr, "vhost_dirty_log: no such device: %s\n", name);
	exit(KSFT_FAIL);
}

static uint64_t number_argument(const char *text)
{
	char *rest;
	uint64_t number;

	errno = 0;
	number = strtoull(text, &rest, 10);
	if (errno || *rest || !*text || !number) {
		fprintf(stderr, "vhost_dirty_log: not a positive number: %s\n", text);
		exit(KSFT_FAIL);
	}
	return number;
}

static void parse_options(int argc, char **argv)
{
	static const struct option options[] = {
		{"count", required_argument, NULL, 'c'},
		{"device", required_argument, NULL, 'd'},
		{"only", required_argument, NULL, 'o'},
		{"seed", required_argument, NULL, 's'},
		{"failures", required_argument, NULL, 'f'},
		{"expect-report", no_argument, NULL, 'e'},
		{"while-held", required_argument, NULL, 'w'},
		{"bench", no_argument, NULL, 'b'},
		{"help", no_argument, NULL, 'h'},
		{},
	};
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
		switch (option) {
		case 'c':
			option_count = number_argument(optarg);
			break;
		case 'd':
			option_device = device_argument(optarg);
			break;
		case 'o':
			option_only = optarg;
			break;
		case 's':
			option_seed = number_argument(optarg);
			break;
		case 'f':
			option_failures = optarg;
			break;
		case 'e':
			option_expect_report = true;
			break;
		case 'w':
			option_while_held = optarg;
			break;
		case 'b':
			option_bench = true;
			break;
		default:
			usage(option == 'h' ? stdout : stderr);
			exit(option == 'h' ? KSFT_PASS : KSFT_FAIL);
		}
	}
	if (optind < argc) {
		usage(stderr);
		exit(KSFT_FAIL);
	}
}

int main(int argc, char **argv)
{
	sigset_t child;

	parse_options(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	verdict = mmap(NULL, sizeof(*verdict), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (verdict == MAP_FAILED) {
		perror("mmap");
		return KSFT_FAIL;
	}
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	return option_bench ? run_bench() : run_tests();
}
