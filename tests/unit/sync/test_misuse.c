/* SPDX-License-Identifier: BSD-3-Clause */
/* Every error that sync.h promises, by its number and with a message, and that nothing changed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <silt/error.h>
#include <silt/sync.h>

#include "fake.h"

#define PAGE UINT64_C(4096)

static struct silt_sync *s;

/* Clear the last message, so that each call has to leave its own. */
#define refused(call, err)                                      \
	do {                                                    \
		silt_sync_block_pages(s, -77);                  \
		assert_int_equal(call, -(err));                 \
		assert_null(strstr(silt_errmsg(), "-77"));      \
		assert_int_not_equal(strlen(silt_errmsg()), 0); \
	} while (0)

static void begin(void **state)
{
	(void)state;
	assert_int_equal(silt_sync_create(NULL, &s), 0);
}

static int create(uint32_t page_shift, uint32_t threads, uint64_t chunk_pages)
{
	struct silt_sync_options opt = {
		.size = sizeof(opt),
		.page_shift = page_shift,
		.threads = threads,
		.chunk_pages = chunk_pages,
	};
	struct silt_sync *made;
	int ret = silt_sync_create(&opt, &made);

	if (!ret)
		silt_sync_destroy(made);
	return ret;
}

static void test_options(void **state)
{
	begin(state);
	refused(create(11, 0, 0), EINVAL);
	refused(create(22, 0, 0), EINVAL);
	refused(create(0, 65, 0), EINVAL);
	refused(create(0, 0, 32), EINVAL);
	refused(create(0, 0, 65), EINVAL);
	refused(create(0, 0, UINT64_C(1) << 63), EINVAL);
	assert_int_equal(create(12, 1, 64), 0);
	assert_int_equal(create(21, 5, UINT64_C(1) << 40), 0);
	silt_sync_destroy(s);
}

/* An older caller's options are shorter, a newer one's are longer. */
static void test_sizes(void **state)
{
	struct {
		struct silt_sync_options opt;
		uint64_t more;
	} newer = {.opt = {.size = sizeof(newer), .page_shift = 12}};
	struct {
		struct silt_sync_stats stats;
		uint64_t more;
	} stats = {.stats = {.size = sizeof(stats)}, .more = 1};
	struct silt_sync *made;

	begin(state);
	assert_int_equal(silt_sync_create(&newer.opt, &made), 0);
	silt_sync_destroy(made);
	newer.more = 1;
	refused(silt_sync_create(&newer.opt, &made), EINVAL);
	newer.opt.size = offsetof(struct silt_sync_options, threads);
	newer.opt.threads = 1000;
	assert_int_equal(silt_sync_create(&newer.opt, &made), 0);
	silt_sync_destroy(made);
	newer.opt.size = 0;
	refused(silt_sync_create(&newer.opt, &made), EINVAL);
	newer.opt.size = SIZE_MAX;
	refused(silt_sync_create(&newer.opt, &made), EINVAL);
	stats.stats.size = SIZE_MAX;
	assert_int_equal(silt_sync_stats(s, &stats.stats), -EINVAL);
	stats.stats.size = sizeof(stats);
	assert_int_equal(silt_sync_stats(s, &stats.stats), 0);
	assert_int_equal(stats.stats.size, sizeof(stats));
	assert_int_equal(stats.more, 0);
	stats.more = 1;
	stats.stats.size = offsetof(struct silt_sync_stats, clears);
	stats.stats.clears = 7;
	assert_int_equal(silt_sync_stats(s, &stats.stats), 0);
	assert_int_equal(stats.stats.clears, 7);
	stats.stats.size = 0;
	refused(silt_sync_stats(s, &stats.stats), EINVAL);
	refused(silt_sync_slot_add(s, NULL), EINVAL);
	refused(silt_sync_add_kvm(s, NULL), EINVAL);
	silt_sync_destroy(s);
}

static void test_blocks(void **state)
{
	int block;

	begin(state);
	refused(silt_sync_block_add(s, "b", 0, NULL), EINVAL);
	refused(silt_sync_block_add(s, "b", PAGE + 1, NULL), EINVAL);
	refused(silt_sync_block_add(s, "b", UINT64_MAX - PAGE + 1, NULL), EINVAL);
	refused(silt_sync_block_add(s, "b", PAGE, (void *)(uintptr_t)1), EINVAL);
	refused(silt_sync_block_add(s, NULL, PAGE, NULL), EINVAL);
	refused(silt_sync_block_add(s, "b", (UINT64_C(1) << 52) + PAGE, NULL), EINVAL);
	assert_true(silt_sync_consumer_add(s, true) == 0);
	block = silt_sync_block_add(s, "b", 10 * PAGE, NULL);
	assert_int_equal(block, 0);
	refused(silt_sync_block_resize(s, block, 0, NULL), EINVAL);
	refused(silt_sync_block_resize(s, block, PAGE / 2, NULL), EINVAL);
	refused(silt_sync_block_resize(s, block, PAGE, (void *)(uintptr_t)(64 * PAGE)), EINVAL);
	refused(silt_sync_block_resize(s, block, UINT64_C(1) << 61, NULL), EINVAL);
	assert_int_equal(silt_sync_block_pages(s, block), 10);
	assert_int_equal(silt_sync_dirty(s, 0, block, 0, 10), 10);
	refused(silt_sync_block_resize(s, 1, PAGE, NULL), ENOENT);
	refused(silt_sync_block_remove(s, 1), ENOENT);
	refused(silt_sync_block_remove(s, -1), ENOENT);
	assert_int_equal(silt_sync_block_pages(s, 1), -ENOENT);
	refused(silt_sync_block_count(s, INT32_MAX), ENOENT);
	assert_int_equal(silt_sync_block_count(s, block), 0);
	assert_int_equal(silt_sync_block_remove(s, block), 0);
	refused(silt_sync_block_remove(s, block), ENOENT);
	silt_sync_destroy(s);
}

static struct silt_sync_slot slot_of(int block)
{
	return (struct silt_sync_slot){
		.size = sizeof(struct silt_sync_slot),
		.number = 1,
		.flags = SILT_SYNC_SLOT_LOGGED,
		.block = block,
		.gpa = 100 * PAGE,
		.bytes = 4 * PAGE,
		.offset = 6 * PAGE,
	};
}

#define slot_refused(member, value, err)                    \
	do {                                                \
		struct silt_sync_slot bad_ = slot_of(0);    \
                                                            \
		bad_.member = value;                        \
		refused(silt_sync_slot_add(s, &bad_), err); \
	} while (0)

static void test_slots(void **state)
{
	struct silt_sync_slot slot;
	int id;

	begin(state);
	assert_int_equal(silt_sync_block_add(s, "b", 10 * PAGE, NULL), 0);
	slot_refused(number, 0x10000, EINVAL);
	slot_refused(address_space, 0x10000, EINVAL);
	slot_refused(flags, 2, EINVAL);
	slot_refused(bytes, 0, EINVAL);
	slot_refused(bytes, 512, EINVAL);
	slot_refused(gpa, 512, EINVAL);
	slot_refused(gpa, UINT64_MAX - 2 * PAGE + 1, EINVAL);
	slot_refused(offset, 512, EINVAL);
	slot_refused(offset, 7 * PAGE, ERANGE);
	slot_refused(offset, UINT64_MAX - PAGE + 1, ERANGE);
	slot_refused(bytes, UINT64_C(1) << 62, ERANGE);
	slot_refused(block, 1, ENOENT);
	slot_refused(block, -1, ENOENT);
	slot_refused(size, 0, EINVAL);
	/* The last page that there is may be in a slot. */
	slot = slot_of(0);
	slot.gpa = UINT64_MAX - 4 * PAGE + 1;
	id = silt_sync_slot_add(s, &slot);
	assert_int_equal(id, 0);
	assert_int_equal(silt_sync_slot_remove(s, id), 0);
	refused(silt_sync_slot_remove(s, id), ENOENT);
	slot = slot_of(0);
	assert_int_equal(silt_sync_slot_add(s, &slot), 0);
	slot_refused(gpa, 0, EEXIST);
	slot_refused(number, 2, EEXIST);
	slot.number = 2;
	slot.gpa = 103 * PAGE;
	refused(silt_sync_slot_add(s, &slot), EEXIST);
	slot.address_space = 1;
	assert_int_equal(silt_sync_slot_add(s, &slot), 1);
	refused(silt_sync_block_remove(s, 0), EBUSY);
	refused(silt_sync_block_resize(s, 0, 9 * PAGE, NULL), EBUSY);
	assert_int_equal(silt_sync_block_pages(s, 0), 10);
	silt_sync_destroy(s);
}

static void test_consumers(void **state)
{
	uint64_t first;
	int i;

	begin(state);
	assert_int_equal(silt_sync_block_add(s, "b", 10 * PAGE, NULL), 0);
	for (i = 0; i < SILT_SYNC_MAX_CONSUMERS; i++)
		assert_int_equal(silt_sync_consumer_add(s, false), i);
	refused(silt_sync_consumer_add(s, false), E2BIG);
	assert_int_equal(silt_sync_consumer_remove(s, 3), 0);
	refused(silt_sync_consumer_remove(s, 3), ENOENT);
	refused(silt_sync_run(s, 3), ENOENT);
	refused(silt_sync_run(s, -2), ENOENT);
	refused(silt_sync_run(s, SILT_SYNC_MAX_CONSUMERS), ENOENT);
	refused(silt_sync_take(s, 3, 0, 0, 1, &first), ENOENT);
	refused(silt_sync_put_back(s, 3, 0, 0, 1), ENOENT);
	refused(silt_sync_discard(s, 3, 0, 0, 1), ENOENT);
	refused(silt_sync_dirty(s, 3, 0, 0, 1), ENOENT);
	refused(silt_sync_dirty(s, SILT_SYNC_NO_CONSUMER, 0, 0, 1), ENOENT);
	assert_int_equal(silt_sync_consumer_add(s, true), 3);
	assert_int_equal(silt_sync_dirty(s, 3, 0, 0, 10), 10);
	silt_sync_destroy(s);
}

static void test_ranges(void **state)
{
	uint64_t first;

	begin(state);
	assert_int_equal(silt_sync_block_add(s, "b", 10 * PAGE, NULL), 0);
	assert_int_equal(silt_sync_consumer_add(s, false), 0);
	refused(silt_sync_take(s, 0, 1, 0, 1, &first), ENOENT);
	refused(silt_sync_take(s, 0, 0, 0, 0, &first), EINVAL);
	refused(silt_sync_take(s, 0, 0, 11, 1, &first), EINVAL);
	assert_int_equal(silt_sync_take(s, 0, 0, 10, 1, &first), 0);
	assert_int_equal(silt_sync_take(s, 0, 0, 0, UINT64_MAX, &first), 0);
	refused(silt_sync_put_back(s, 0, 0, 0, 11), EINVAL);
	refused(silt_sync_put_back(s, 0, 0, 5, UINT64_MAX), EINVAL);
	refused(silt_sync_put_back(s, 0, -1, 0, 1), ENOENT);
	refused(silt_sync_mark(s, 0, UINT64_MAX, 2), EINVAL);
	refused(silt_sync_mark(s, 0, 10, 1), EINVAL);
	refused(silt_sync_mark(s, 1, 0, 1), ENOENT);
	refused(silt_sync_discard(s, 0, 0, 9, 2), EINVAL);
	refused(silt_sync_dirty(s, 0, 0, 9, 2), EINVAL);
	assert_int_equal(silt_sync_dirty(s, 0, 0, 0, 10), 0);
	assert_int_equal(silt_sync_mark(s, 0, 10, 0), 0);
	assert_int_equal(silt_sync_mark(s, 0, 9, 1), 0);
	assert_int_equal(silt_sync_take(s, 0, 0, 0, UINT64_MAX, &first), 1);
	assert_int_equal(first, 9);
	silt_sync_destroy(s);
}

static void test_kvm(void **state)
{
	struct fake f = {0};
	struct silt_sync_kvm opt = {
		.size = sizeof(opt), .ioctl = fake_ioctl, .opaque = &f, .page_shift = 14};
	struct silt_sync_slot slot = slot_of(0);

	begin(state);
	assert_int_equal(silt_sync_block_add(s, "b", 100 * PAGE, NULL), 0);
	opt.mode = 2;
	refused(silt_sync_add_kvm(s, &opt), EINVAL);
	opt.mode = SILT_SYNC_KVM_MANUAL;
	opt.page_shift = 11;
	refused(silt_sync_add_kvm(s, &opt), EINVAL);
	opt.page_shift = 17;
	refused(silt_sync_add_kvm(s, &opt), EINVAL);
	opt.page_shift = 14;
	opt.ioctl = NULL;
	opt.vm_fd = -1;
	refused(silt_sync_add_kvm(s, &opt), EINVAL);
	opt.ioctl = fake_ioctl;
	/* A slot that does not lie on the host's pages cannot be one of KVM's: whoever comes first.
	 */
	slot.bytes = 5 * PAGE;
	assert_int_equal(silt_sync_slot_add(s, &slot), 0);
	refused(silt_sync_add_kvm(s, &opt), EINVAL);
	refused(silt_sync_source_remove(s, 0), ENOENT);
	assert_int_equal(silt_sync_slot_remove(s, 0), 0);
	assert_int_equal(silt_sync_add_kvm(s, &opt), 0);
	refused(silt_sync_add_kvm(s, &opt), EEXIST);
	refused(silt_sync_slot_add(s, &slot), EINVAL);
	assert_int_equal(silt_sync_block_remove(s, 0), 0);
	refused(silt_sync_source_count(s, 1), ENOENT);
	refused(silt_sync_source_count(s, -1), ENOENT);
	refused(silt_sync_source_count(s, 64), ENOENT);
	assert_int_equal(silt_sync_source_count(s, 0), 0);
	refused(silt_sync_source_remove(s, 1), ENOENT);
	assert_int_equal(silt_sync_source_remove(s, 0), 0);
	refused(silt_sync_source_remove(s, 0), ENOENT);
	assert_int_equal(silt_sync_add_kvm(s, &opt), 0);
	silt_sync_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options),	  cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_blocks),	  cmocka_unit_test(test_slots),
		cmocka_unit_test(test_consumers), cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_kvm),
	};

	silt_sync_destroy(NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
