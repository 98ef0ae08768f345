/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel's vhost devices, where this machine has them: what a session asks for is granted, and
 * the ioctls come in an order that the kernel takes. kernel/run has a guest that always has them.
 */
#include <errno.h>
#include <linux/virtio_config.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <silt/error.h>

#include "check/session.h"
#include "support/proc.h"

static void test_other_paths_are_refused(void **state)
{
	struct check_transport *t = NULL;

	(void)state;
	assert_int_equal(check_transport_kernel("/dev/vhost-scsi", &t), -EINVAL);
	assert_non_null(strstr(silt_errmsg(), "/dev/vhost-scsi is neither /dev/vhost-net nor"));
	assert_null(t);
}

static bool is_missing(int ret)
{
	return ret == -ENOENT || ret == -ENODEV || ret == -EACCES || ret == -EPERM;
}

/* Without buffers: rings are set up, run, are logged, and stop. */
static void run_rings(struct check_session *s, struct check_guest *guest,
		      const struct check_device *device)
{
	const struct check_scenario usual = {.device = device};
	struct check_session_log log;

	assert_int_equal(check_session_open(s), 0);
	assert_true(s->offered & SILT_VHOST_F_LOG_ALL);
	s->features = UINT64_C(1) << VIRTIO_F_VERSION_1;
	assert_int_equal(check_session_make_rings(s, &usual), 0);
	assert_int_equal(check_session_set_up(s, true), 0);
	assert_int_equal(check_session_log_create(&log, check_guest_end(guest) / 4096, 4096), 0);
	assert_int_equal(check_session_set_log(s, &log), 0);
	assert_int_equal(check_session_start(s), 0);
	assert_int_equal(check_session_logging(s, true, true), 0);
	assert_int_equal(check_session_stop(s), 0);
	assert_int_equal(check_session_start(s), 0);
	assert_int_equal(check_session_stop(s), 0);
	assert_string_equal(s->wrong, "");
	check_session_log_destroy(&log);
}

static void run_device(const char *path, const struct check_device *device)
{
	const struct check_options opt = {
		.target = CHECK_TARGET_KERNEL, .path = path, .timeout_ms = 5000, .fd = -1};
	struct check_random random = check_random_named(1, path);
	struct check_places places = {0};
	struct check_transport *probe;
	struct check_target target;
	struct check_guest guest;
	struct check_session s = {.target = &target, .guest = &guest, .places = &places};
	unsigned int fds = proc_count_fds();
	int ret = check_transport_kernel(path, &probe);

	if (is_missing(ret)) {
		print_message("%s\n", silt_errmsg());
		skip();
	}
	assert_int_equal(ret, 0);
	check_transport_destroy(probe);
	assert_int_equal(check_target_open(&target, &opt), 0);
	assert_int_equal(check_guest_create(&guest), 0);
	check_guest_reset(&guest, &random);
	run_rings(&s, &guest, device);
	check_session_close(&s, false);
	check_places_free(&places);
	check_guest_destroy(&guest);
	check_target_close(&target);
	assert_int_equal(proc_count_fds(), fds);
}

static void test_vhost_net(void **state)
{
	(void)state;
	run_device("/dev/vhost-net", &check_device_net);
}

static void test_vhost_vsock(void **state)
{
	(void)state;
	run_device("/dev/vhost-vsock", &check_device_vsock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_other_paths_are_refused),
		cmocka_unit_test(test_vhost_net),
		cmocka_unit_test(test_vhost_vsock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
