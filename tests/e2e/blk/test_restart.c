/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The real silt blk, killed by SIGKILL again and again while requests are in flight and the log is
 * on, and started again. The driver keeps its rings, the frontend its inflight area and its log.
 * Each request must be answered once, with the right data in memory or on disk, and a monitor that
 * harvests the log all the while must end up with memory as it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_ring.h>

#include <silt/silt.h>

#include "program.h"
#include "support/proc.h"
#include "support/rng.h"
#include "virtq/inflight.h"

#define PAGE	  SILT_LOG_PAGE_SIZE
#define BIT(n)	  (UINT64_C(1) << (n))
#define QUEUES	  2
#define NUM	  128
#define SLOTS	  24 /* requests in flight in each queue */
#define MANY_SEGS 1000
#define DATA	  16384 /* the most bytes of one request */
#define SECTORS	  (DATA / 512)
#define GPA	  UINT64_C(0x40000000)

#define RING_FEATURES (BIT(VIRTIO_RING_F_EVENT_IDX) | BIT(VIRTIO_RING_F_INDIRECT_DESC))

/* Offsets inside a queue's share of memory. The used ring straddles two pages. */
#define DESC	     0
#define AVAIL	     2048
#define USED	     (2 * PAGE - 60)
#define HEADERS	     (3 * PAGE)
#define STATUSES     (4 * PAGE)
#define SOURCES	     (5 * PAGE) /* data to write to the disk */
#define TARGETS	     (SOURCES + SLOTS * DATA)
#define TARGET(slot) (TARGETS + (slot) * (DATA + PAGE) + 512 * ((slot) % 8))
#define SHARE	     (TARGETS + SLOTS * (DATA + PAGE) + PAGE)

#define MEM_SIZE  (QUEUES * SHARE)
#define LOG_SIZE  ((GPA + MEM_SIZE) / PAGE / 8 + 1)
#define DISK_SIZE (QUEUES * SLOTS * DATA)

struct slot {
	bool busy, reads;
	uint32_t first, count; /* sectors, inside the slot's own stretch of the disk */
};

struct queue {
	struct silt_driver *driver;
	struct slot slots[SLOTS];
	int kick_fd, call_fd;
};

struct world {
	struct rng rng;
	char dir[64];
	char image_arg[96], socket_arg[96];
	const char *image, *socket; /* inside the arguments */
	struct program program;
	bool running;
	unsigned int starts;

	int mem_fd, log_fd, area_fd;
	uint8_t *mem, *copied, *disk; /* copied: the monitor's; disk: what it must hold */
	uint64_t *dirty;
	struct silt_log *log;
	struct silt_vhost_inflight area;
	struct queue queues[QUEUES];

	struct silt_frontend *f;
	unsigned int messages_left; /* until the kill, if it is to come while they are sent */
	unsigned int completed, kills, resumed;
};

static uint64_t below(struct world *w, uint64_t n)
{
	return rng_below(&w->rng, n);
}

static uint8_t *at(const struct world *w, unsigned int q, uint64_t off)
{
	return w->mem + q * SHARE + off;
}

static uint64_t gpa_of(const struct world *w, const uint8_t *p)
{
	return GPA + (p - w->mem);
}

/* ---- The monitor ----------------------------------------------------------------------------- */

/* A store by the CPU to memory that the device writes, too: copied at once. */
static void cpu_fill(struct world *w, uint8_t *p, uint8_t byte, uint32_t len)
{
	memset(p, byte, len);
	memset(w->copied + (p - w->mem), byte, len);
}

static void harvest(struct world *w)
{
	uint64_t end = (GPA + MEM_SIZE) / PAGE, page = GPA / PAGE;

	memset(w->dirty, 0, (end / 64 + 1) * 8);
	assert_true(silt_log_harvest(w->log, w->dirty) >= 0);
	while ((page = silt_bitmap_next(w->dirty, page, end)) < end) {
		uint64_t off = page++ * PAGE - GPA;

		memcpy(w->copied + off, w->mem + off, PAGE);
	}
}

static void expect_copied(const struct world *w, unsigned int q, uint64_t off, uint64_t end)
{
	for (; off < end; off += PAGE) {
		const uint8_t *p = at(w, q, off);

		if (memcmp(p, w->copied + (p - w->mem), PAGE))
			fail_msg("queue %u: page at offset %#llx changed and was not marked", q,
				 (unsigned long long)off);
	}
}

/* What only the driver stores to is none of the log's business. */
static void expect_all_copied(const struct world *w)
{
	for (unsigned int q = 0; q < QUEUES; q++) {
		expect_copied(w, q, PAGE, HEADERS);
		expect_copied(w, q, STATUSES, SOURCES);
		expect_copied(w, q, TARGETS, SHARE);
	}
}

/* ---- The driver ------------------------------------------------------------------------------ */

static uint8_t *stretch(const struct world *w, unsigned int q, unsigned int slot)
{
	return w->disk + (q * SLOTS + slot) * DATA;
}

static void add(struct world *w, unsigned int q, unsigned int slot)
{
	struct slot *s = &w->queues[q].slots[slot];
	struct virtio_blk_outhdr *hdr = (void *)(at(w, q, HEADERS) + 16 * slot);
	uint8_t *status = at(w, q, STATUSES) + 16 * slot, *data, *to;
	struct silt_driver_seg segs[3] = {{gpa_of(w, (uint8_t *)hdr), sizeof(*hdr), false}};

	s->busy = true;
	s->reads = below(w, 2);
	s->first = below(w, SECTORS);
	s->count = 1 + below(w, SECTORS - s->first);
	hdr->type = s->reads ? VIRTIO_BLK_T_IN : VIRTIO_BLK_T_OUT;
	hdr->ioprio = 0;
	hdr->sector = (q * SLOTS + slot) * SECTORS + s->first;
	cpu_fill(w, status, 0xff, 1);
	data = at(w, q, s->reads ? TARGET(slot) : SOURCES + slot * DATA);
	to = stretch(w, q, slot) + 512 * s->first;
	if (s->reads) {
		cpu_fill(w, data, ~*to, 512 * s->count);
	} else {
		for (uint32_t i = 0; i < 512 * s->count; i += 8)
			*(uint64_t *)(data + i) = rng_next(&w->rng);
		memcpy(to, data, 512 * s->count);
	}
	segs[1] = (struct silt_driver_seg){gpa_of(w, data), 512 * s->count, s->reads};
	segs[2] = (struct silt_driver_seg){gpa_of(w, status), 1, true};
	assert_true(silt_driver_add(w->queues[q].driver, segs, 3, NULL, 0, s) >= 0);
}

static void submit(struct world *w)
{
	for (unsigned int q = 0; q < QUEUES; q++) {
		struct queue *queue = &w->queues[q];

		for (unsigned int slot = 0; slot < SLOTS; slot++)
			if (!queue->slots[slot].busy && below(w, 3))
				add(w, q, slot);
		if (silt_driver_publish(queue->driver) > 0)
			eventfd_write(queue->kick_fd, 1);
	}
}

static void expect_answer(const struct world *w, unsigned int q, const struct slot *s)
{
	unsigned int slot = s - w->queues[q].slots;

	if (!s->busy)
		fail_msg("queue %u: slot %u was answered twice", q, slot);
	if (*(at(w, q, STATUSES) + 16 * slot) != VIRTIO_BLK_S_OK)
		fail_msg("queue %u: slot %u ended with status %u", q, slot,
			 *(at(w, q, STATUSES) + 16 * slot));
	if (s->reads &&
	    memcmp(at(w, q, TARGET(slot)), stretch(w, q, slot) + 512 * s->first, 512 * s->count))
		fail_msg("queue %u: slot %u read the wrong data", q, slot);
}

static unsigned int collect(struct world *w)
{
	unsigned int n = 0;

	for (unsigned int q = 0; q < QUEUES; q++) {
		struct slot *s;
		uint32_t len;
		int ret;

		while ((ret = silt_driver_collect(w->queues[q].driver, (void **)&s, &len)) > 0) {
			expect_answer(w, q, s);
			s->busy = false;
			n++;
		}
		if (ret < 0)
			fail_msg("queue %u: %s", q, silt_errmsg());
	}
	w->completed += n;
	return n;
}

static unsigned int in_flight(const struct world *w)
{
	return silt_driver_inflight(w->queues[0].driver) +
	       silt_driver_inflight(w->queues[1].driver);
}

/* Sleep until there is an answer: with no kick of ours, only a call wakes us. */
static void wait_for_answer(struct world *w)
{
	struct pollfd fds[QUEUES];
	eventfd_t count;

	for (unsigned int q = 0; q < QUEUES; q++) {
		fds[q] = (struct pollfd){w->queues[q].call_fd, POLLIN, 0};
		if (silt_driver_enable_call(w->queues[q].driver))
			return;
	}
	if (poll(fds, QUEUES, PROGRAM_TIMEOUT_MS) <= 0)
		fail_msg("no answer within %d ms, %u requests in flight: %s", PROGRAM_TIMEOUT_MS,
			 in_flight(w), program_output(&w->program));
	for (unsigned int q = 0; q < QUEUES; q++)
		eventfd_read(w->queues[q].call_fd, &count);
}

/* ---- The frontend ---------------------------------------------------------------------------- */

static void kill_now(struct world *w)
{
	assert_int_equal(program_end(&w->program, SIGKILL), 128 + SIGKILL);
	assert_string_equal(program_complaint(&w->program), "");
	w->running = false;
	w->kills++;
	w->resumed += in_flight(w) > 0;
}

static void count_message(void *arg, const struct silt_vhost_msg *msg, bool from_backend)
{
	struct world *w = arg;

	(void)msg;
	if (!from_backend && w->messages_left && !--w->messages_left)
		kill_now(w);
}

static int negotiate(struct world *w)
{
	uint64_t features = SILT_VHOST_F_PROTOCOL_FEATURES | SILT_VHOST_F_LOG_ALL |
			    BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_BLK_F_FLUSH) | RING_FEATURES;
	uint64_t protocol = SILT_VHOST_PROTOCOL_F_MQ | SILT_VHOST_PROTOCOL_F_LOG_SHMFD |
			    SILT_VHOST_PROTOCOL_F_REPLY_ACK | SILT_VHOST_PROTOCOL_F_INFLIGHT_SHMFD;
	int ret = silt_frontend_set_protocol_features(w->f, protocol);

	if (!ret)
		ret = silt_frontend_set_owner(w->f);
	return ret ? ret : silt_frontend_set_features(w->f, features);
}

static int set_memory(struct world *w)
{
	struct silt_vhost_mem_region region = {GPA, MEM_SIZE, GPA, 0};
	int ret = 0;

	if (w->area_fd < 0)
		ret = silt_frontend_get_inflight_fd(w->f, &w->area, &w->area_fd);
	if (!ret)
		ret = silt_frontend_set_inflight_fd(w->f, &w->area, w->area_fd);
	return ret ? ret : silt_frontend_set_mem_table(w->f, &region, &w->mem_fd, 1);
}

static int set_ring(struct world *w, unsigned int q)
{
	const struct queue *queue = &w->queues[q];
	uint64_t share = GPA + q * SHARE;
	struct silt_vhost_vring_addr addr = {
		.index = q,
		.flags = SILT_VHOST_VRING_F_LOG,
		.desc_user_addr = share + DESC,
		.avail_user_addr = share + AVAIL,
		.used_user_addr = share + USED,
		.log_guest_addr = share + USED,
	};
	uint16_t base;
	int ret;

	/* A frontend that lost its backend knows no better base than the used index. */
	memcpy(&base, at(w, q, USED + 2), sizeof(base));
	ret = silt_frontend_set_vring_num(w->f, q, NUM);
	if (!ret)
		ret = silt_frontend_set_vring_base(w->f, q, base);
	if (!ret)
		ret = silt_frontend_set_vring_addr(w->f, &addr);
	if (!ret)
		ret = silt_frontend_set_vring_kick(w->f, q, queue->kick_fd);
	if (!ret)
		ret = silt_frontend_set_vring_call(w->f, q, queue->call_fd);
	return ret ? ret : silt_frontend_set_vring_enable(w->f, q, true);
}

static int set_up(struct world *w, bool log_first)
{
	int ret = negotiate(w);

	if (!ret)
		ret = set_memory(w);
	if (!ret && log_first)
		ret = silt_frontend_set_log_base(w->f, LOG_SIZE, 0, w->log_fd);
	for (unsigned int q = 0; q < QUEUES && !ret; q++)
		ret = set_ring(w, q);
	if (!ret && !log_first)
		ret = silt_frontend_set_log_base(w->f, LOG_SIZE, 0, w->log_fd);
	return ret;
}

static void start_program(struct world *w)
{
	const char *const args[] = {w->image_arg, w->socket_arg, "--num-queues=2",
				    w->starts++ % 2 ? "--aio=sync" : "--aio=auto", NULL};

	program_start(&w->program, -1, args);
	w->running = true;
}

/* One try. Return: true if the rings run. */
static bool connect_once(struct world *w, bool log_first)
{
	int ret = silt_frontend_connect(w->socket, PROGRAM_TIMEOUT_MS, &w->f);

	if (ret < 0) {
		sched_yield();
		return false;
	}
	silt_frontend_trace(w->f, count_message, w);
	ret = set_up(w, log_first);
	if (!ret)
		return true;
	if (ret != -ECONNRESET)
		fail_msg("%s", silt_errmsg());
	silt_frontend_destroy(w->f);
	w->f = NULL;
	return false;
}

/*
 * Connect to a program that is started if none runs. One that finds the dead one's socket still
 * open in a process that is only about to end gives up: then another one is started.
 *
 * The log comes first, or last, as QEMU sends it when a device starts during a migration. One that
 * dies before the log comes takes to its grave what it marked, so the next one, likewise without a
 * log, marks all of memory: seldom, so that it does not hide what else is missing.
 */
static void come_up(struct world *w)
{
	bool log_first = below(w, 10);

	do {
		if (w->running && !program_running(&w->program)) {
			assert_int_equal(program_wait(&w->program), 1);
			assert_non_null(strstr(w->program.text, "another program listens"));
			w->running = false;
		}
		if (!w->running)
			start_program(w);
	} while (!connect_once(w, log_first));
}

/* ---- Life and death -------------------------------------------------------------------------- */

static void work(struct world *w)
{
	unsigned int until = w->completed + below(w, 3 * SLOTS);

	while (w->completed < until) {
		submit(w);
		if (!collect(w))
			wait_for_answer(w);
		if (!below(w, 3))
			harvest(w);
	}
}

static void drain(struct world *w)
{
	while (in_flight(w))
		if (!collect(w))
			wait_for_answer(w);
	for (unsigned int q = 0; q < QUEUES; q++) {
		uint16_t used;

		memcpy(&used, at(w, q, USED + 2), sizeof(used));
		assert_int_equal(silt_frontend_get_vring_base(w->f, q), used);
	}
	harvest(w);
	expect_all_copied(w);
}

/* Die at once after some requests were submitted, or while they are under way, or idle. */
static void die(struct world *w)
{
	volatile unsigned int spins;

	if (!below(w, 4))
		drain(w);
	else
		submit(w);
	for (spins = below(w, 3) * below(w, 200000); spins; spins--)
		;
	kill_now(w);
	silt_frontend_destroy(w->f);
	w->f = NULL;
	if (below(w, 2))
		harvest(w);
}

static void expect_disk(const struct world *w)
{
	uint8_t *is = malloc(DISK_SIZE);
	int fd = open(w->image, O_RDONLY | O_CLOEXEC);

	assert_non_null(is);
	assert_int_equal(pread(fd, is, DISK_SIZE, 0), DISK_SIZE);
	for (uint32_t i = 0; i < DISK_SIZE; i++)
		if (is[i] != w->disk[i])
			fail_msg("byte %#x of the disk is %#x, not %#x", i, is[i], w->disk[i]);
	close(fd);
	free(is);
}

/* ---- Setting up ------------------------------------------------------------------------------ */

/* The place of the world that is open; an assertion that fails leaves it. */
static char place[64];

static void remove_place(void)
{
	char path[80];

	if (!place[0])
		return;
	snprintf(path, sizeof(path), "%s/disk", place);
	unlink(path);
	snprintf(path, sizeof(path), "%s/sock", place);
	unlink(path);
	rmdir(place);
	place[0] = '\0';
}

static void make_place(struct world *w)
{
	static bool registered;
	int fd;

	if (!registered)
		registered = !atexit(remove_place);
	snprintf(w->dir, sizeof(w->dir), "/tmp/silt-restart-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	snprintf(place, sizeof(place), "%s", w->dir);
	snprintf(w->image_arg, sizeof(w->image_arg), "--blk-file=%s/disk", w->dir);
	snprintf(w->socket_arg, sizeof(w->socket_arg), "--socket-path=%s/sock", w->dir);
	w->image = strchr(w->image_arg, '=') + 1;
	w->socket = strchr(w->socket_arg, '=') + 1;
	fd = open(w->image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, DISK_SIZE), 0);
	close(fd);
}

static void make_queue(struct world *w, unsigned int q)
{
	const struct silt_virtq_layout layout = {
		.num = NUM,
		.desc = at(w, q, DESC),
		.avail = at(w, q, AVAIL),
		.used = at(w, q, USED),
		.features = RING_FEATURES,
	};

	w->queues[q].kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->queues[q].call_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_int_equal(silt_driver_create(&layout, 65400 + q, &w->queues[q].driver), 0);
}

static void open_world(struct world *w, uint64_t seed)
{
	*w = (struct world){.rng = rng_make(seed), .area_fd = -1};
	w->area = (struct silt_vhost_inflight){.num_queues = QUEUES, .queue_size = NUM};
	make_place(w);
	w->mem_fd = proc_memfd("memory", MEM_SIZE);
	w->log_fd = proc_memfd("log", LOG_SIZE);
	w->mem = mmap(NULL, MEM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, w->mem_fd, 0);
	assert_ptr_not_equal(w->mem, MAP_FAILED);
	w->copied = malloc(MEM_SIZE);
	w->disk = calloc(1, DISK_SIZE);
	w->dirty = calloc(LOG_SIZE / 8 + 1, 8);
	assert_true(w->copied && w->disk && w->dirty);
	assert_int_equal(silt_log_map(w->log_fd, LOG_SIZE, 0, &w->log), 0);
	for (unsigned int q = 0; q < QUEUES; q++)
		make_queue(w, q);
	memcpy(w->copied, w->mem, MEM_SIZE);
}

static void close_world(struct world *w)
{
	for (unsigned int q = 0; q < QUEUES; q++) {
		silt_driver_destroy(w->queues[q].driver);
		close(w->queues[q].kick_fd);
		close(w->queues[q].call_fd);
	}
	silt_log_put(w->log);
	munmap(w->mem, MEM_SIZE);
	close(w->mem_fd);
	close(w->log_fd);
	close(w->area_fd);
	free(w->copied);
	free(w->disk);
	free(w->dirty);
	remove_place();
	assert_int_equal(access(w->dir, F_OK), -1);
}

static unsigned int wanted_kills = 20;

static void test_killed_and_restarted(void **state)
{
	static struct world w;

	(void)state;
	open_world(&w, wanted_kills);
	while (w.kills < wanted_kills) {
		w.messages_left = below(&w, 3) ? 0 : 1 + below(&w, 18);
		come_up(&w);
		work(&w);
		die(&w);
	}
	w.messages_left = 0;
	come_up(&w);
	work(&w);
	drain(&w);
	silt_frontend_destroy(w.f);
	expect_disk(&w);
	assert_int_equal(program_end(&w.program, SIGTERM), 0);
	/* Else nothing was tested. */
	assert_true(w.resumed > wanted_kills / 2);
	assert_true(w.completed > wanted_kills);
	print_message("%u kills, %u with requests in flight, %u requests\n", w.kills, w.resumed,
		      w.completed);
	close_world(&w);
}

/* ---- What the C library asks the kernel for, unasked ----------------------------------------- */

/* A read with a segment for each of @nsegs sectors, or a flush if there are none. Return: its head.
 */
static int add_request(struct world *w, unsigned int i, unsigned int nsegs)
{
	struct virtio_blk_outhdr *hdr = (void *)(at(w, 0, HEADERS) + 16 * i);
	struct silt_driver_seg segs[MANY_SEGS + 2] = {{gpa_of(w, (uint8_t *)hdr), 16, false}};
	uint8_t *table = nsegs ? at(w, 0, SOURCES) : NULL;
	unsigned int n;
	int head;

	*hdr = (struct virtio_blk_outhdr){.type = nsegs ? VIRTIO_BLK_T_IN : VIRTIO_BLK_T_FLUSH};
	for (n = 1; n <= nsegs; n++)
		segs[n] = (struct silt_driver_seg){gpa_of(w, at(w, 0, TARGETS)), 512, true};
	segs[n] = (struct silt_driver_seg){gpa_of(w, at(w, 0, STATUSES) + i), 1, true};
	head = silt_driver_add(w->queues[0].driver, segs, n + 1, table,
			       table ? gpa_of(w, table) : 0, hdr);
	assert_true(head >= 0);
	return head;
}

static void collect_all(struct world *w)
{
	uint32_t len;
	void *token;

	while (in_flight(w))
		if (silt_driver_collect(w->queues[0].driver, &token, &len) <= 0)
			wait_for_answer(w);
}

/* A process that was killed with the whole ring in flight leaves much to put in order. */
static void test_whole_ring_in_flight(void **state)
{
	struct silt_inflight_region *r;
	static struct world w;

	(void)state;
	open_world(&w, 1);
	come_up(&w);
	kill_now(&w);
	silt_frontend_destroy(w.f);
	r = mmap(NULL, w.area.mmap_size, PROT_READ | PROT_WRITE, MAP_SHARED, w.area_fd, 0);
	assert_ptr_not_equal(r, MAP_FAILED);
	for (unsigned int i = 0; i < NUM / 2; i++) {
		int head = add_request(&w, i, 0);

		r->desc[head].inflight = 1;
		r->desc[head].counter = i;
	}
	assert_true(silt_driver_publish(w.queues[0].driver) >= 0);
	munmap(r, w.area.mmap_size);
	come_up(&w);
	collect_all(&w);
	silt_frontend_destroy(w.f);
	assert_int_equal(program_end(&w.program, SIGTERM), 0);
	close_world(&w);
}

/* What requests of many segments needed is given back when the frontend leaves. */
static void test_much_memory_given_back(void **state)
{
	static struct world w;

	(void)state;
	open_world(&w, 1);
	for (unsigned int n = 0; n < 3; n++) {
		come_up(&w);
		for (unsigned int i = 0; i < NUM; i++)
			add_request(&w, i, MANY_SEGS >> (2 - n));
		if (silt_driver_publish(w.queues[0].driver) > 0)
			eventfd_write(w.queues[0].kick_fd, 1);
		collect_all(&w);
		silt_frontend_destroy(w.f);
	}
	assert_int_equal(program_end(&w.program, SIGTERM), 0);
	close_world(&w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_ring_in_flight),
		cmocka_unit_test(test_much_memory_given_back),
		cmocka_unit_test(test_killed_and_restarted),
	};

	if (argc < 2 || argc > 3)
		return 2;
	program_silt = argv[1];
	if (argc == 3)
		wanted_kills = strtoul(argv[2], NULL, 10);
	return cmocka_run_group_tests_name("silt blk", tests, NULL, NULL);
}
