/* SPDX-License-Identifier: BSD-3-Clause */
#include <linux/virtio_config.h>

#include <silt/error.h>

#include "base/err.h"
#include "check/probe.h"

static int get_queues(struct check_session *s, struct check_applies *a)
{
	int ret = check_transport_call(s->transport, get_queue_num, &a->queues);

	return ret < 0 ? check_session_failed(s, ret, "GET_QUEUE_NUM") : 0;
}

int check_probe_start(const struct check_scenario_env *env, struct check_session *s,
		      struct check_scenario *usual, struct check_builder *b)
{
	int ret;

	*usual = (struct check_scenario){.device = env->device};
	*b = (struct check_builder){
		.scenario = usual,
		.state = env->state,
		.guest = env->guest,
		.places = s->places,
		.random = check_random_named(env->seed, "probe"),
	};
	check_guest_reset(env->guest, &b->random);
	s->features = (env->device->features | UINT64_C(1) << VIRTIO_F_VERSION_1 |
		       SILT_VHOST_F_PROTOCOL_FEATURES) &
		      s->offered;
	ret = check_session_make_rings(s, usual);
	if (ret == 0)
		ret = check_session_set_up(s, true);
	if (ret == 0)
		ret = check_session_start(s);
	return ret;
}

static int learn(const struct check_scenario_env *env, struct check_session *s,
		 struct check_applies *a)
{
	int ret = get_queues(s, a);

	if (a->limit && a->queues > a->limit)
		a->queues = a->limit;
	a->features = s->offered;
	a->protocol = s->protocol;
	a->offered_protocol = s->offered_protocol;
	return ret < 0 ? ret : env->device->probe(env, s, a);
}

int check_probe_backend(const struct check_scenario_env *env, const struct check_options *opt,
			struct check_applies *a)
{
	struct check_places places = {0};
	struct check_session s = {
		.target = env->target, .guest = env->guest, .places = &places, .trace = env->trace};
	int ret = check_session_open(&s);

	a->device = env->device;
	a->limit = opt->max_queues;
	a->state = env->state;
	a->one_connection = env->target->kept;
	a->kernel = opt->target == CHECK_TARGET_KERNEL;
	a->started = check_target_started(env->target);
	a->may_change = check_target_has_image(env->target) || opt->allow_writes;
	if (ret == 0)
		ret = learn(env, &s, a);
	check_session_close(&s, ret < 0);
	check_places_free(&places);
	return ret < 0 ? silt_err(-ret, "%s", s.error) : 0;
}
