/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <silt/error.h>

#include "base/err.h"
#include "check/probe.h"

#define READ_LEN 65536

static int get_queues(struct check_session *s, struct check_applies *a)
{
	int ret;

	a->queues = 1;
	if (!(s->protocol & SILT_VHOST_PROTOCOL_F_MQ))
		return 0;
	ret = silt_frontend_get_queue_num(s->f, &a->queues);
	return ret < 0 ? check_session_failed(s, ret, "GET_QUEUE_NUM") : 0;
}

/* A disk that does not suit the check is no error: then nothing applies. */
static int get_config(struct check_session *s, struct check_blk_disk *disk, struct check_applies *a)
{
	static char unfit[256];
	struct virtio_blk_config config = {0};
	uint32_t len;
	int ret;

	if (!(s->protocol & SILT_VHOST_PROTOCOL_F_CONFIG)) {
		a->unfit = "the backend does not offer CONFIG: the size of its disk is unknown";
		return 0;
	}
	len = check_blk_config_len(s->offered);
	ret = silt_frontend_get_config(s->f, 0, &config, len);
	if (ret < 0)
		return check_session_failed(s, ret, "GET_CONFIG");
	if (check_blk_disk_init(disk, &config, len, s->offered) < 0) {
		strncpy(unfit, silt_errmsg(), sizeof(unfit) - 1);
		a->unfit = unfit;
	}
	return 0;
}

static int read_image(struct check_blk_disk *disk)
{
	ssize_t n;

	disk->known = malloc(disk->reads.len);
	if (!disk->known)
		return silt_err_sys(ENOMEM, "cannot hold what is on the disk");
	n = pread(disk->image, disk->known, disk->reads.len, disk->reads.start);
	if (n < 0)
		return silt_err_sys(errno, "cannot read the image");
	if (n == (ssize_t)disk->reads.len)
		return 0;
	return silt_err(EIO,
			"the image ends at byte %zd, but the backend says that its disk has %lu", n,
			disk->capacity);
}

static uint64_t copy_read(const struct check_guest *g, const struct check_blk_request *r,
			  uint8_t *to)
{
	memcpy(to, check_guest_mem(g, r->piece[0].gpa), r->len);
	return r->len;
}

static int read_zone(struct check_session *s, struct check_blk_builder *b, uint8_t *to)
{
	const struct check_blk_zone *zone = &b->disk->reads;
	struct check_blk_request r;
	uint64_t at;
	int ret = 0;

	for (at = 0; at < zone->len && !ret; at += copy_read(b->guest, &r, to + at)) {
		if (check_blk_build_read(b, (zone->start + at) / BLK_SECTOR,
					 zone->len - at < READ_LEN ? zone->len - at : READ_LEN,
					 &r) < 0)
			return check_session_error(s, "%s", silt_errmsg());
		ret = check_session_add(s, &r);
		check_session_kick(s);
		if (ret == 0)
			ret = check_session_wait(s);
		if (ret == 0 && *(uint8_t *)check_guest_mem(b->guest, r.status) != VIRTIO_BLK_S_OK)
			ret = check_session_error(s, "%s failed", r.text);
	}
	return ret;
}

/*
 * Read a disk that is not ours, with logging off. If that does not work it stays unknown, and the
 * scenarios show what is wrong.
 */
static void learn_disk(struct check_scenario_env *env, struct check_session *s)
{
	static const struct check_scenario usual;
	struct check_blk_builder builder = {
		.scenario = &usual, .disk = env->disk, .guest = env->guest, .places = s->places};
	struct check_random random = check_random_named(env->seed, "probe");
	uint8_t *known = malloc(env->disk->reads.len);
	int ret = known ? 0 : -ENOMEM;

	check_guest_reset(env->guest, &random);
	builder.random = random;
	s->features = (check_blk_features() | UINT64_C(1) << VIRTIO_F_VERSION_1 |
		       SILT_VHOST_F_PROTOCOL_FEATURES) &
		      s->offered;
	if (ret == 0)
		ret = check_session_make_rings(s, &usual);
	if (ret == 0)
		ret = check_session_set_up(s, true);
	if (ret == 0)
		ret = check_session_start(s);
	if (ret == 0)
		ret = read_zone(s, &builder, known);
	if (ret == 0)
		ret = check_session_stop(s);
	if (ret == 0)
		env->disk->known = known;
	else
		free(known);
}

static int learn(struct check_scenario_env *env, struct check_session *s, struct check_applies *a)
{
	int ret = get_queues(s, a);

	if (ret == 0)
		ret = get_config(s, env->disk, a);
	if (ret < 0)
		return ret;
	a->features = s->offered;
	a->protocol = s->protocol;
	a->offered_protocol = s->offered_protocol;
	if (!a->unfit && check_target_has_image(env->target))
		return read_image(env->disk) < 0 ? check_session_error(s, "%s", silt_errmsg()) : 0;
	if (!a->unfit)
		learn_disk(env, s);
	return 0;
}

int check_probe_backend(struct check_scenario_env *env, const struct check_options *opt,
			struct check_applies *a)
{
	struct check_places places = {0};
	struct check_session s = {
		.target = env->target, .guest = env->guest, .places = &places, .trace = env->trace};
	int ret = check_session_open(&s);

	env->disk->image = env->target->image;
	if (ret == 0)
		ret = learn(env, &s, a);
	check_session_close(&s, ret < 0);
	check_places_free(&places);
	if (ret < 0)
		return silt_err(-ret, "%s", s.error);
	a->disk = env->disk;
	a->varies = check_blk_disk_varies(env->disk);
	a->one_connection = env->target->kept;
	a->started = check_target_started(env->target);
	a->our_disk = check_target_has_image(env->target) || opt->allow_writes;
	env->may_write = a->our_disk && !(a->features >> VIRTIO_BLK_F_RO & 1);
	return 0;
}
