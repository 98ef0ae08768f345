/* SPDX-License-Identifier: BSD-3-Clause */
/* What is marked, where, and when: the laws of the log, one by one, on the device end. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/virtio_ring.h>

#include "guest.h"
#include "support/proc.h"
#include "virtq/inflight.h"
#include "virtq/queue.h"

#define NUM   8
#define DESC  UINT64_C(0x11000)
#define AVAIL UINT64_C(0x12000)
#define USED  UINT64_C(0x13000)
#define TABLE UINT64_C(0x20000)
#define BUF   UINT64_C(0x28000)

#define INDIRECT  (UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC)
#define EVENT_IDX (UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX)

struct fixture {
	struct guest guest;
	struct guest_ring ring;
	struct silt_virtq *vq;
	struct silt_driver *driver;
};

static void start_at(struct fixture *f, uint64_t used, uint64_t features, uint16_t index)
{
	guest_open(&f->guest);
	guest_place_ring(&f->guest, &f->ring, NUM, DESC, AVAIL, used, features);
	assert_int_equal(silt_driver_create(&f->ring.driver, index, &f->driver), 0);
	assert_int_equal(silt_virtq_create(&f->vq), 0);
	assert_int_equal(silt_virtq_start(f->vq, &f->ring.device, f->guest.mem, index), 0);
	silt_virtq_set_log(f->vq, f->guest.log, true, true, used);
}

static void start(struct fixture *f, uint64_t features)
{
	start_at(f, USED, features, 0);
}

static void stop(struct fixture *f)
{
	silt_virtq_destroy(f->vq);
	silt_driver_destroy(f->driver);
	guest_close(&f->guest);
}

static struct silt_virtq_elem *pop(struct fixture *f)
{
	struct silt_virtq_elem *elem;

	assert_int_equal(silt_virtq_pop(f->vq, &elem), 1);
	return elem;
}

static struct silt_virtq_elem *submit(struct fixture *f, const struct silt_driver_seg *segs,
				      unsigned int nsegs)
{
	assert_true(silt_driver_add(f->driver, segs, nsegs, NULL, 0, f) >= 0);
	silt_driver_publish(f->driver);
	return pop(f);
}

static struct silt_virtq_elem *submit_one(struct fixture *f, uint64_t gpa, uint32_t len)
{
	const struct silt_driver_seg seg = {.gpa = gpa, .len = len, .device_writes = true};

	return submit(f, &seg, 1);
}

static void complete(struct fixture *f, struct silt_virtq_elem *elem)
{
	silt_virtq_push(f->vq, elem, elem->write_len);
	assert_true(silt_virtq_publish(f->vq) >= 0);
}

static void collect(struct fixture *f)
{
	uint32_t len;
	void *token;

	assert_int_equal(silt_driver_collect(f->driver, &token, &len), 1);
}

/* Exactly the pages of [@gpa, @gpa + @len) are marked; then clear them. */
static void expect_marks(struct fixture *f, uint64_t gpa, uint64_t len)
{
	uint64_t page;
	unsigned int n = 0;

	for (page = gpa >> 12; len && page <= (gpa + len - 1) >> 12; page++, n++)
		assert_true(guest_marked(&f->guest, page << 12));
	assert_int_equal(guest_marks(&f->guest), n);
	guest_clear_log(&f->guest);
}

/* ---- Which pages ----------------------------------------------------------------------------- */

static void test_wrote_cuts_across_segments(void **state)
{
	/* Three pages apart each, the middle one over a cut between regions. */
	const struct silt_driver_seg segs[3] = {
		{BUF + 0xff0, 0x20, true}, {GUEST_CUT2 - 0x10, 0x20, true}, {GUEST_HIGH, 1, true}};
	struct silt_virtq_elem *elem;
	struct fixture f;

	(void)state;
	start(&f, 0);
	elem = submit(&f, segs, 3);
	assert_int_equal(elem->nwrite, 4);
	assert_int_equal(elem->write_len, 0x41);

	silt_virtq_wrote(f.vq, elem, 0, 0x10);
	silt_virtq_flush(f.vq);
	expect_marks(&f, BUF, 1);

	silt_virtq_wrote(f.vq, elem, 0x0f, 2);
	silt_virtq_flush(f.vq);
	expect_marks(&f, BUF + 0xfff, 2);

	silt_virtq_wrote(f.vq, elem, 0x10, 0x10);
	silt_virtq_flush(f.vq);
	expect_marks(&f, BUF + 0x1000, 1);

	silt_virtq_wrote(f.vq, elem, 0x2f, 0x11);
	silt_virtq_flush(f.vq);
	expect_marks(&f, GUEST_CUT2, 1);

	silt_virtq_wrote(f.vq, elem, 0x40, UINT64_MAX);
	silt_virtq_flush(f.vq);
	expect_marks(&f, GUEST_HIGH, 1);

	silt_virtq_wrote(f.vq, elem, 0x41, 1);
	silt_virtq_wrote(f.vq, elem, UINT64_MAX, 1);
	silt_virtq_wrote(f.vq, elem, 0, 0);
	silt_virtq_flush(f.vq);
	expect_marks(&f, 0, 0);

	complete(&f, elem);
	expect_marks(&f, USED, 1);
	stop(&f);
}

static void test_last_byte_of_memory(void **state)
{
	struct silt_virtq_elem *elem;
	struct fixture f;

	(void)state;
	start(&f, 0);
	elem = submit_one(&f, GUEST_HIGH_END - 1, 1);
	assert_int_equal(silt_virtq_write(f.vq, elem, 0, "x", 1), 0);
	silt_virtq_flush(f.vq);
	expect_marks(&f, GUEST_HIGH_END - 1, 1);
	complete(&f, elem);
	stop(&f);
}

static void test_what_is_switched_on(void **state)
{
	struct silt_virtq_elem *elem;
	struct fixture f;
	unsigned int mode;

	(void)state;
	for (mode = 0; mode < 4; mode++) {
		bool data = mode & 1, used = mode & 2;

		start(&f, EVENT_IDX);
		silt_virtq_set_log(f.vq, f.guest.log, data, used, 0x300000);
		elem = submit_one(&f, BUF, 16);
		assert_int_equal(silt_virtq_write(f.vq, elem, 0, "x", 1), 0);
		complete(&f, elem);
		silt_virtq_enable_kick(f.vq);
		assert_int_equal(guest_marked(&f.guest, BUF), data);
		assert_int_equal(guest_marked(&f.guest, 0x300000), used);
		assert_int_equal(guest_marks(&f.guest), data + used);
		stop(&f);
	}
}

/* The used ring's last field is the first on a page, so that only its own mark can set the bit. */
static void test_event_field_on_its_own_page(void **state)
{
	struct fixture f;

	(void)state;
	start_at(&f, 0x14000 - 4 - 8 * NUM, EVENT_IDX, 0);
	assert_int_equal(silt_virtq_enable_kick(f.vq), 0);
	expect_marks(&f, 0x14000, 1);
	stop(&f);
}

static void test_flags_and_index_on_their_own_page(void **state)
{
	struct silt_virtq_elem *elem;
	struct fixture f;

	(void)state;
	start_at(&f, 0x13ffc, 0, 0);
	assert_int_equal(silt_virtq_disable_kick(f.vq), 0);
	expect_marks(&f, 0x13ffc, 1);
	assert_int_equal(silt_virtq_disable_kick(f.vq), 0);
	expect_marks(&f, 0, 0);
	assert_int_equal(silt_virtq_enable_kick(f.vq), 0);
	expect_marks(&f, 0x13ffc, 1);
	elem = submit_one(&f, BUF, 1);
	complete(&f, elem);
	expect_marks(&f, 0x13ffc, 12);
	stop(&f);
}

/* Entries 0 to 3 on one page, 4 to 7 on the next: a batch that wraps marks both. */
static void test_batch_over_the_end_of_the_ring(void **state)
{
	struct silt_virtq_elem *a, *b;
	struct fixture f;

	(void)state;
	start_at(&f, 0x14000 - 4 - 8 * 4, 0, UINT16_MAX);
	silt_virtq_set_log(f.vq, f.guest.log, false, true, 0x14000 - 4 - 8 * 4);
	a = submit_one(&f, BUF, 1);
	b = submit_one(&f, BUF, 1);
	silt_virtq_push(f.vq, a, 0);
	silt_virtq_push(f.vq, b, 0);
	silt_virtq_publish(f.vq);
	expect_marks(&f, 0x13fff, 2);
	assert_int_equal(*(uint16_t *)guest_at(&f.guest, 0x14000 - 4 - 8 * 4 + 2), 1);
	stop(&f);
}

/* Entries lie on a page that nothing else marks: the first one after the wrap must do it itself. */
static void test_first_entry_after_the_wrap(void **state)
{
	struct fixture f;

	(void)state;
	start_at(&f, 0x13ffc, 0, 2 * NUM - 1);
	silt_virtq_set_log(f.vq, f.guest.log, false, true, 0x13ffc);
	complete(&f, submit_one(&f, BUF, 1));
	expect_marks(&f, 0x13fff, 2);
	complete(&f, submit_one(&f, BUF, 1));
	expect_marks(&f, 0x13fff, 2);
	stop(&f);
}

static void test_used_address_beyond_the_log(void **state)
{
	static const uint64_t gpas[] = {UINT64_MAX - 7, UINT64_MAX, UINT64_MAX - 4095,
					GUEST_LOG_SIZE * 8 * 4096};
	struct fixture f;
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(gpas) / sizeof(gpas[0]); i++) {
		start(&f, EVENT_IDX);
		silt_virtq_set_log(f.vq, f.guest.log, false, true, gpas[i]);
		complete(&f, submit_one(&f, BUF, 1));
		silt_virtq_enable_kick(f.vq);
		expect_marks(&f, 0, 0);
		assert_int_equal(silt_log_trouble(f.guest.log), SILT_LOG_OUTSIDE);
		assert_true(silt_virtq_counters(f.vq)->outside > 0);
		stop(&f);
	}
}

/* Descriptors are read once: what the driver puts there later changes nothing. */
static void read_once(bool indirect)
{
	struct silt_driver_seg seg = {.gpa = BUF, .len = 16, .device_writes = true};
	const struct vring_desc later = {
		.addr = BUF + 0x8000, .len = 8, .flags = VRING_DESC_F_WRITE};
	struct silt_virtq_elem *elem;
	struct fixture f;

	start(&f, INDIRECT);
	silt_driver_add(f.driver, &seg, 1, indirect ? guest_at(&f.guest, TABLE) : NULL, TABLE, &f);
	silt_driver_publish(f.driver);
	elem = pop(&f);
	memcpy(guest_at(&f.guest, indirect ? TABLE : DESC), &later, sizeof(later));
	assert_int_equal(silt_virtq_write(f.vq, elem, 0, "0123456789abcdef", 16), 0);
	silt_virtq_flush(f.vq);
	expect_marks(&f, BUF, 16);
	assert_memory_equal(guest_at(&f.guest, BUF), "0123456789abcdef", 16);
	complete(&f, elem);
	stop(&f);
}

static void test_descriptors_read_once(void **state)
{
	(void)state;
	read_once(false);
	read_once(true);
}

/* ---- When ------------------------------------------------------------------------------------ */

static void test_stop_flushes(void **state)
{
	struct silt_virtq_elem *elem;
	struct fixture f;

	(void)state;
	start(&f, 0);
	elem = submit_one(&f, BUF, 16);
	silt_virtq_wrote(f.vq, elem, 0, 16);
	silt_virtq_push(f.vq, elem, 16);
	assert_int_equal(silt_virtq_stop(f.vq), 1);
	assert_true(guest_marked(&f.guest, BUF));
	assert_true(guest_marked(&f.guest, USED));
	assert_int_equal(guest_marks(&f.guest), 2);
	collect(&f);
	stop(&f);
}

static void test_log_replaced_in_flight(void **state)
{
	struct silt_log *old;
	struct silt_virtq_elem *a, *b;
	struct fixture f;
	uint64_t *bits = calloc(GUEST_LOG_SIZE / 8 + 1, 8);

	(void)state;
	start(&f, 0);
	old = silt_log_get(f.guest.log);
	a = submit_one(&f, BUF, 16);
	b = submit_one(&f, BUF + 0x2000, 16);
	silt_virtq_wrote(f.vq, a, 0, 16);
	guest_new_log(&f.guest, 4097);
	silt_virtq_set_log(f.vq, f.guest.log, true, true, USED);
	assert_int_equal(silt_log_harvest(old, bits), 1);
	assert_true(silt_bitmap_test(bits, BUF >> 12));

	silt_virtq_wrote(f.vq, b, 0, 16);
	silt_virtq_push(f.vq, a, 16);
	silt_virtq_push(f.vq, b, 16);
	silt_virtq_publish(f.vq);
	assert_int_equal(silt_log_harvest(old, bits), 0);
	silt_log_put(old);
	assert_true(guest_marked(&f.guest, BUF + 0x2000));
	assert_true(guest_marked(&f.guest, USED));
	assert_int_equal(guest_marks(&f.guest), 2);
	stop(&f);
	free(bits);
}

/* The pages that the stores below are caught at: each store finds its page write-protected once. */
static struct {
	struct fixture *f;
	char *used_page, *log_page;
	unsigned int used_faults, log_faults;
	struct silt_inflight_region *region;
	bool data_marked, ring_marked, idx_stored, inflight;
} watch;

static uint16_t used_idx(struct fixture *f)
{
	return __atomic_load_n((uint16_t *)guest_at(&f->guest, f->ring.used + 2), __ATOMIC_RELAXED);
}

static char *log_page(const struct fixture *f)
{
	return (char *)((uintptr_t)f->vq->writer.whole & ~UINT64_C(4095));
}

static void on_protected_store(int sig, siginfo_t *info, void *context)
{
	char *addr = info->si_addr;

	(void)sig, (void)context;
	if (addr >= watch.used_page && addr < watch.used_page + 4096) {
		watch.used_faults++;
		watch.data_marked = guest_marked(&watch.f->guest, BUF);
		watch.ring_marked = guest_marked(&watch.f->guest, USED);
		mprotect(watch.used_page, 4096, PROT_READ | PROT_WRITE);
		mprotect(watch.log_page, 4096, PROT_READ);
	} else if (addr >= watch.log_page && addr < watch.log_page + 4096) {
		watch.log_faults++;
		watch.idx_stored = used_idx(watch.f) == 1;
		watch.inflight = watch.region->desc[0].inflight;
		mprotect(watch.log_page, 4096, PROT_READ | PROT_WRITE);
	} else {
		abort();
	}
}

/*
 * Law 1. When the first byte of the used ring is stored, the data's bit is set and the ring's is
 * not; when the ring's bit is set, the index is stored, and the request still counts as in flight.
 */
static void test_order_of_a_completion(void **state)
{
	static uint8_t region[16 + 16 * NUM] __attribute__((aligned(8)));
	struct sigaction act = {.sa_sigaction = on_protected_store, .sa_flags = SA_SIGINFO}, old;
	struct silt_virtq_elem *elem;
	struct fixture f;

	(void)state;
	start(&f, 0);
	memset(&watch, 0, sizeof(watch));
	watch.f = &f;
	watch.used_page = (char *)((uintptr_t)f.ring.device.used & ~UINT64_C(4095));
	watch.log_page = log_page(&f);
	watch.region = (struct silt_inflight_region *)region;
	assert_int_equal(silt_virtq_set_inflight(f.vq, region, NUM), 0);
	elem = submit_one(&f, BUF, 16);
	assert_int_equal(silt_virtq_write(f.vq, elem, 0, "x", 1), 0);
	silt_virtq_push(f.vq, elem, 1);
	sigaction(SIGSEGV, &act, &old);
	mprotect(watch.used_page, 4096, PROT_READ);
	assert_int_equal(silt_virtq_publish(f.vq), 1);
	sigaction(SIGSEGV, &old, NULL);
	assert_int_equal(watch.used_faults, 1);
	assert_int_equal(watch.log_faults, 1);
	assert_true(watch.data_marked);
	assert_false(watch.ring_marked);
	assert_true(watch.idx_stored);
	assert_true(watch.inflight);
	assert_int_equal(watch.region->desc[0].inflight, 0);
	assert_true(guest_marked(&f.guest, USED));
	stop(&f);
}

/* Where a field of the used ring lies, and what it held when its page was marked. */
static struct {
	const uint16_t *field;
	char *log_page;
	uint16_t held;
	unsigned int faults;
} wish;

static void on_protected_log(int sig, siginfo_t *info, void *context)
{
	char *addr = info->si_addr;

	(void)sig, (void)context;
	if (addr < wish.log_page || addr >= wish.log_page + 4096)
		abort();
	wish.faults++;
	wish.held = __atomic_load_n(wish.field, __ATOMIC_RELAXED);
	mprotect(wish.log_page, 4096, PROT_READ | PROT_WRITE);
}

static void expect_stored_then_marked(struct fixture *f, uint64_t field, uint16_t want,
				      int (*ask)(struct silt_virtq *))
{
	struct sigaction act = {.sa_sigaction = on_protected_log, .sa_flags = SA_SIGINFO}, old;

	guest_clear_log(&f->guest);
	memset(&wish, 0, sizeof(wish));
	wish.field = guest_at(&f->guest, f->ring.used + field);
	wish.log_page = log_page(f);
	assert_int_not_equal(*wish.field, want);
	sigaction(SIGSEGV, &act, &old);
	mprotect(wish.log_page, 4096, PROT_READ);
	assert_int_equal(ask(f->vq), 0);
	sigaction(SIGSEGV, &old, NULL);
	assert_int_equal(wish.faults, 1);
	assert_int_equal(wish.held, want);
}

/* Law 1 for what the device says about kicks. */
static void test_order_of_a_wish(void **state)
{
	struct fixture f;

	(void)state;
	start(&f, 0);
	expect_stored_then_marked(&f, SILT_USED_FLAGS, VRING_USED_F_NO_NOTIFY,
				  silt_virtq_disable_kick);
	expect_stored_then_marked(&f, SILT_USED_FLAGS, 0, silt_virtq_enable_kick);
	stop(&f);
	start(&f, EVENT_IDX);
	complete(&f, submit_one(&f, BUF, 16));
	expect_stored_then_marked(&f, SILT_USED_EVENT(NUM), 1, silt_virtq_enable_kick);
	stop(&f);
}

/* ---- Memory that changes --------------------------------------------------------------------- */

static struct silt_memory *without_high(const struct guest *g)
{
	struct silt_memory *mem;

	assert_int_equal(silt_memory_remove(g->mem, GUEST_HIGH, GUEST_HIGH, GUEST_HIGH_SIZE, &mem),
			 0);
	return mem;
}

static void test_region_removed_in_flight(void **state)
{
	struct silt_virtq_elem *elem, *other;
	struct silt_memory *mem;
	struct fixture f;
	unsigned int maps;

	(void)state;
	start(&f, 0);
	maps = proc_count_maps("memfd:high");
	elem = submit_one(&f, GUEST_HIGH + 0x1000, 16);
	mem = without_high(&f.guest);
	silt_virtq_set_memory(f.vq, mem);
	silt_virtq_set_memory(f.vq, mem);
	silt_memory_put(f.guest.mem);
	f.guest.mem = mem;

	/* The element's memory is still there, and is let go with it. */
	assert_int_equal(silt_virtq_write(f.vq, elem, 0, "0123456789abcdef", 16), 0);
	assert_memory_equal(guest_at(&f.guest, GUEST_HIGH + 0x1000), "0123456789abcdef", 16);
	assert_int_equal(proc_count_maps("memfd:high"), maps);
	complete(&f, elem);
	assert_true(guest_marked(&f.guest, GUEST_HIGH + 0x1000));
	assert_int_equal(proc_count_maps("memfd:high"), maps - 1);

	silt_driver_add(f.driver, &(struct silt_driver_seg){GUEST_HIGH, 1, true}, 1, NULL, 0, &f);
	silt_driver_publish(f.driver);
	assert_int_equal(silt_virtq_pop(f.vq, &other), -EFAULT);
	stop(&f);
}

/* Two regions, the second behind the first, and each once more elsewhere. */
static struct silt_memory *doubled_memory(int fd)
{
	const struct silt_memory_region regions[] = {
		{.gpa = 0x10000, .size = 0x4000, .user_addr = 0x100000},
		{.gpa = 0x14000, .size = 0x4000, .user_addr = 0x300000, .mmap_offset = 0x4000},
		{.gpa = 0x30000, .size = 0x4000, .user_addr = 0x300000, .mmap_offset = 0x4000},
		{.gpa = 0x40000, .size = 0x4000, .user_addr = 0x100000},
	};
	struct silt_memory *mem, *next;

	assert_int_equal(silt_memory_create(&mem), 0);
	for (unsigned int i = 0; i < 4; i++) {
		assert_int_equal(silt_memory_add(mem, &regions[i], fd, &next), 0);
		silt_memory_put(mem);
		mem = next;
	}
	return mem;
}

/* Behind an IOMMU, a used ring that lies in two regions is marked wherever either of them lies. */
static void test_aliases_across_regions(void **state)
{
	struct silt_iotlb *iotlb;
	struct silt_memory *mem;
	struct fixture f;

	(void)state;
	start_at(&f, USED, 0, 0);
	mem = doubled_memory(f.guest.fd_low);
	assert_int_equal(silt_iotlb_create(&iotlb), 0);
	silt_virtq_set_iotlb(f.vq, iotlb, NULL, NULL);
	silt_virtq_set_memory(f.vq, mem);
	silt_virtq_set_log(f.vq, f.guest.log, true, true, 0x13ff8);
	silt_virtq_used_unknown(f.vq);
	assert_true(guest_marked(&f.guest, 0x13000));
	assert_true(guest_marked(&f.guest, 0x14000));
	assert_true(guest_marked(&f.guest, 0x43000));
	assert_true(guest_marked(&f.guest, 0x30000));
	assert_int_equal(guest_marks(&f.guest), 4);
	silt_iotlb_put(iotlb);
	silt_memory_put(mem);
	stop(&f);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	if (!silt_access_handle(sig, info, context))
		abort();
}

/* cmocka owns these signals in each test, and restores them after it. */
static void recover_faults(void)
{
	struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};

	assert_int_equal(silt_access_register(), 0);
	assert_int_equal(sigaction(SIGBUS, &act, NULL), 0);
	assert_int_equal(sigaction(SIGSEGV, &act, NULL), 0);
}

/* Truncated under the queue: errors, no crash; a log that is whole has what may have been stored.
 */
static void test_truncated_memory(void **state)
{
	struct silt_virtq_elem *elem, *other;
	struct fixture f;
	char buf[16];

	(void)state;
	recover_faults();
	start(&f, 0);
	elem = submit_one(&f, BUF, 16);
	assert_int_equal(ftruncate(f.guest.fd_low, 0), 0);
	assert_int_equal(silt_virtq_write(f.vq, elem, 0, buf, sizeof(buf)), -EFAULT);
	assert_non_null(strstr(silt_errmsg(), "guest memory at 0x28000"));
	silt_virtq_flush(f.vq);
	expect_marks(&f, BUF, 16);
	silt_virtq_push(f.vq, elem, 0);
	assert_int_equal(silt_virtq_publish(f.vq), -EFAULT);
	expect_marks(&f, USED, 1);
	assert_int_equal(silt_virtq_pop(f.vq, &other), -EFAULT);
	assert_int_equal(silt_virtq_publish(f.vq), 0);
	assert_int_equal(silt_virtq_enable_kick(f.vq), -EFAULT);
	assert_int_equal(silt_virtq_disable_kick(f.vq), -EFAULT);
	assert_int_equal(silt_virtq_stop(f.vq), 1);
	assert_int_equal(silt_virtq_start(f.vq, &f.ring.device, f.guest.mem, 0), -EFAULT);
	stop(&f);
}

/* Once completions were lost, none is published at a place that the driver does not expect. */
static void test_lost_completion_stays_lost(void **state)
{
	struct silt_virtq_elem *a, *b;
	struct fixture f;

	(void)state;
	recover_faults();
	start(&f, 0);
	a = submit_one(&f, BUF, 16);
	b = submit_one(&f, BUF, 16);
	silt_virtq_push(f.vq, a, 0);
	assert_int_equal(ftruncate(f.guest.fd_low, 0), 0);
	assert_int_equal(silt_virtq_publish(f.vq), -EFAULT);
	assert_int_equal(ftruncate(f.guest.fd_low, 0x1200 + GUEST_LOW_SIZE), 0);
	silt_virtq_push(f.vq, b, 0);
	assert_int_equal(silt_virtq_publish(f.vq), -EFAULT);
	assert_int_equal(used_idx(&f), 0);
	assert_int_equal(silt_virtq_pop(f.vq, &a), -EFAULT);
	stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrote_cuts_across_segments),
		cmocka_unit_test(test_last_byte_of_memory),
		cmocka_unit_test(test_what_is_switched_on),
		cmocka_unit_test(test_event_field_on_its_own_page),
		cmocka_unit_test(test_flags_and_index_on_their_own_page),
		cmocka_unit_test(test_batch_over_the_end_of_the_ring),
		cmocka_unit_test(test_first_entry_after_the_wrap),
		cmocka_unit_test(test_used_address_beyond_the_log),
		cmocka_unit_test(test_descriptors_read_once),
		cmocka_unit_test(test_stop_flushes),
		cmocka_unit_test(test_log_replaced_in_flight),
		cmocka_unit_test(test_order_of_a_completion),
		cmocka_unit_test(test_order_of_a_wish),
		cmocka_unit_test(test_region_removed_in_flight),
		cmocka_unit_test(test_aliases_across_regions),
		cmocka_unit_test(test_truncated_memory),
		cmocka_unit_test(test_lost_completion_stays_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
