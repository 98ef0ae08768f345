/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake KVM answers as the kernel does, and sees each breach of the rules that it is there for.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fake_kvm.h"

#define PAGES 200
#define SLOT  (1 << 16 | 3)

static struct fake_kvm kvm;
static uint64_t bits[PAGES / 64 + 1];

static void start(enum fake_kvm_kind kind)
{
	struct fake_kvm_options opt = {
		.kind = kind,
		.page_shift = 12,
		.ring_entries = 256,
		.ring_reserve = 253,
		.clear_max_dirty = 2,
	};

	fake_kvm_init(&kvm, &opt);
	kvm.attached = true;
	fake_kvm_slot_add(&kvm, SLOT, PAGES, true, false);
	fake_kvm_slot_add(&kvm, 4, PAGES, false, false);
	if (fake_kvm_has_rings(&kvm))
		fake_kvm_vcpu_add(&kvm);
}

static int get(uint32_t slot)
{
	struct kvm_dirty_log log = {.slot = slot, .dirty_bitmap = bits};
	int ret = fake_kvm_ioctl(&kvm, FAKE_KVM_VM_FD, KVM_GET_DIRTY_LOG, &log);

	return ret < 0 ? -errno : ret;
}

static int clear(uint64_t first, uint32_t pages)
{
	struct kvm_clear_dirty_log log = {
		.slot = SLOT, .first_page = first, .num_pages = pages, .dirty_bitmap = bits};
	int ret = fake_kvm_ioctl(&kvm, FAKE_KVM_VM_FD, KVM_CLEAR_DIRTY_LOG, &log);

	return ret < 0 ? -errno : ret;
}

static int reset(void)
{
	int ret = fake_kvm_ioctl(&kvm, FAKE_KVM_VM_FD, KVM_RESET_DIRTY_RINGS, NULL);

	return ret < 0 ? -errno : ret;
}

static bool is_set(uint64_t page)
{
	return bits[page / 64] >> page % 64 & 1;
}

static void only(uint64_t page)
{
	memset(bits, 0, sizeof(bits));
	bits[page / 64] = UINT64_C(1) << page % 64;
}

/* The first breach is noted, and says this. */
static void expect_breach(const char *part)
{
	if (!strstr(kvm.breach, part))
		fail_msg("breach \"%s\", not \"%s\"", kvm.breach, part);
	kvm.breach[0] = '\0';
}

static void finish(void)
{
	assert_true(!kvm.breach[0]);
	fake_kvm_free(&kvm);
}

static void test_manual(void **state)
{
	(void)state;
	start(FAKE_KVM_MANUAL);
	assert_int_equal(get(SLOT), 0);
	assert_false(is_set(130));
	assert_true(fake_kvm_write(&kvm, 0, SLOT, 130));
	assert_int_equal(get(SLOT), 0);
	assert_true(is_set(130));
	/* It stays until it is cleared. */
	assert_int_equal(get(SLOT), 0);
	assert_true(is_set(130));
	only(2);
	assert_int_equal(clear(128, 64), 0);
	assert_int_equal(get(SLOT), 0);
	assert_false(is_set(130));
	fake_kvm_write(&kvm, 0, SLOT, 130);
	assert_int_equal(get(SLOT), 0);
	assert_true(is_set(130));
	finish();
}

static void test_initially_set_and_get_clears(void **state)
{
	(void)state;
	start(FAKE_KVM_MANUAL_SET);
	assert_int_equal(get(SLOT), 0);
	assert_true(is_set(0) && is_set(PAGES - 1));
	finish();
	start(FAKE_KVM_GET_CLEARS);
	fake_kvm_write(&kvm, 0, SLOT, 9);
	assert_int_equal(get(SLOT), 0);
	assert_true(is_set(9));
	assert_int_equal(get(SLOT), 0);
	assert_false(is_set(9));
	only(9);
	clear(0, 64);
	expect_breach("needs none");
	finish();
}

static void test_refusals(void **state)
{
	(void)state;
	start(FAKE_KVM_MANUAL);
	assert_int_equal(get(4), -ENOENT);
	expect_breach("slot 0x4");
	assert_int_equal(get(5), -ENOENT);
	expect_breach("slot 0x5");
	assert_int_equal(get(7 << 16), -EINVAL);
	expect_breach("slot 0x70000");
	only(0);
	assert_int_equal(clear(1, 64), -EINVAL);
	expect_breach("1+64");
	assert_int_equal(clear(0, 65), -EINVAL);
	expect_breach("0+65");
	assert_int_equal(clear(192, 9), -EINVAL);
	expect_breach("192+9");
	assert_int_equal(clear(256, 0), -EINVAL);
	expect_breach("256+0");
	assert_int_equal(reset(), -EINVAL);
	expect_breach("rings that are not there");
	finish();
	start(FAKE_KVM_RING);
	assert_int_equal(get(SLOT), -ENXIO);
	expect_breach("slot 0x10003");
	finish();
}

static void test_clears_that_the_kernel_lets_pass(void **state)
{
	uint64_t page;

	(void)state;
	start(FAKE_KVM_MANUAL);
	for (page = 0; page < 4; page++)
		fake_kvm_write(&kvm, 0, SLOT, page * 50);
	memset(bits, 0, sizeof(bits));
	clear(0, 64);
	expect_breach("empty");
	only(0);
	clear(0, 64);
	expect_breach("not read");
	fake_kvm_write(&kvm, 0, SLOT, 0);
	assert_int_equal(get(SLOT), 0);
	clear(0, 192);
	expect_breach("4 dirty pages in 3 groups");
	assert_int_equal(get(SLOT), 0);
	fake_kvm_write(&kvm, 0, SLOT, 70);
	assert_int_equal(get(SLOT), 0);
	clear(0, 192);
	expect_breach("begins or ends with nothing");
	finish();
}

static void test_failures(void **state)
{
	(void)state;
	start(FAKE_KVM_GET_CLEARS);
	fake_kvm_write(&kvm, 0, SLOT, 1);
	kvm.failure = (struct fake_kvm_failure){
		.request = KVM_GET_DIRTY_LOG, .after = 1, .error = EFAULT};
	assert_int_equal(get(SLOT), 0);
	assert_int_equal(get(SLOT), -EFAULT);
	assert_true(kvm.failure.fired);
	assert_int_equal(get(SLOT), 0);
	finish();
}

static void test_rings(void **state)
{
	struct kvm_dirty_gfn *ring;

	(void)state;
	start(FAKE_KVM_RING);
	ring = kvm.vcpus[0].ring;
	assert_true(fake_kvm_write(&kvm, 0, SLOT, 5));
	/* A page that is not protected is not noted again. */
	assert_true(fake_kvm_write(&kvm, 0, SLOT, 5));
	assert_true(fake_kvm_write(&kvm, 0, SLOT, 6));
	assert_int_equal(fake_kvm_ring_entries(&kvm), 2);
	assert_int_equal(ring[1].slot, SLOT);
	assert_int_equal(ring[1].offset, 6);
	/* The third entry fills it: the vCPU leaves before it stores. */
	assert_false(fake_kvm_write(&kvm, 0, SLOT, 7));
	assert_false(fake_kvm_write(&kvm, 0, SLOT, 5));
	ring[0].flags = ring[1].flags = KVM_DIRTY_GFN_F_RESET;
	assert_int_equal(reset(), 2);
	assert_int_equal(fake_kvm_ring_entries(&kvm), 1);
	assert_true(fake_kvm_slot_find(&kvm, SLOT)->armed[5]);
	assert_false(fake_kvm_slot_find(&kvm, SLOT)->armed[7]);
	ring[3].flags = KVM_DIRTY_GFN_F_RESET;
	ring[2].flags = KVM_DIRTY_GFN_F_RESET;
	reset();
	expect_breach("never wrote");
	fake_kvm_free(&kvm);
}

static void test_sync_reads_all_once(void **state)
{
	(void)state;
	start(FAKE_KVM_MANUAL);
	fake_kvm_sync_begin(&kvm);
	fake_kvm_sync_end(&kvm);
	expect_breach("read 0 times");
	fake_kvm_sync_begin(&kvm);
	assert_int_equal(get(SLOT), 0);
	fake_kvm_sync_end(&kvm);
	assert_int_equal(get(SLOT), 0);
	fake_kvm_sync_end(&kvm);
	expect_breach("read 2 times");
	finish();
	start(FAKE_KVM_RING);
	fake_kvm_write(&kvm, 0, SLOT, 5);
	fake_kvm_sync_begin(&kvm);
	fake_kvm_sync_end(&kvm);
	expect_breach("left 1 entries");
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_manual),
		cmocka_unit_test(test_initially_set_and_get_clears),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_clears_that_the_kernel_lets_pass),
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_rings),
		cmocka_unit_test(test_sync_reads_all_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
