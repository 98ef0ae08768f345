/* SPDX-License-Identifier: BSD-3-Clause */
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <stddef.h>

#include <silt/vhost_user.h>

#include "check/applies.h"

static const char *backend_lacks(const struct check_applies *a)
{
	if (a->gone)
		return "the backend is gone";
	if (!(a->features & SILT_VHOST_F_LOG_ALL))
		return "the backend does not offer VHOST_F_LOG_ALL: it cannot be migrated live";
	if (!a->kernel && !(a->protocol & SILT_VHOST_PROTOCOL_F_LOG_SHMFD))
		return "the backend does not offer LOG_SHMFD: it cannot be given a log";
	return a->unfit;
}

static const char *connection_lacks(const struct check_applies *a, const uint8_t *v)
{
	if (v[AXIS_LOGGING] == LOGGING_LATE && a->kernel)
		return "in-kernel vhost keeps no marks without a log: monitors give it one before "
		       "its rings run";
	/* Its marks would go there, and rightly so. */
	if (v[AXIS_LOGGING] == LOGGING_LATE && a->one_connection)
		return "the connection cannot be made anew, and the backend still has an old log";
	return NULL;
}

static const char *queue_lacks(const struct check_applies *a, const uint8_t *v)
{
	if (v[AXIS_EVENT_IDX] == EVENT_IDX_ON && !check_applies_offers(a, VIRTIO_RING_F_EVENT_IDX))
		return "the backend does not offer VIRTIO_RING_F_EVENT_IDX";
	if (v[AXIS_SHAPE] == SHAPE_INDIRECT &&
	    !check_applies_offers(a, VIRTIO_RING_F_INDIRECT_DESC))
		return "the backend does not offer VIRTIO_RING_F_INDIRECT_DESC";
	if (v[AXIS_FORMAT] == FORMAT_PACKED && !check_applies_offers(a, VIRTIO_F_RING_PACKED))
		return "the backend does not offer VIRTIO_F_RING_PACKED";
	if (v[AXIS_IN_ORDER] == IN_ORDER_ON && !check_applies_offers(a, VIRTIO_F_IN_ORDER))
		return "the backend does not offer VIRTIO_F_IN_ORDER";
	if (a->queues < 1u << v[AXIS_QUEUES])
		return "the backend has fewer queues than this takes";
	return NULL;
}

static const char *restart_lacks(const struct check_applies *a)
{
	if (!a->started)
		return "only a backend that silt check starts is killed and started again";
	if (!(a->offered_protocol & SILT_VHOST_PROTOCOL_F_INFLIGHT_SHMFD))
		return "the backend cannot resume what was in flight: it does not offer "
		       "INFLIGHT_SHMFD";
	return NULL;
}

static const char *iommu_lacks(const struct check_applies *a)
{
	if (!(a->features & SILT_VHOST_F_ACCESS_PLATFORM))
		return "the backend does not offer VIRTIO_F_ACCESS_PLATFORM";
	if (!a->kernel && !(a->offered_protocol & SILT_VHOST_PROTOCOL_F_BACKEND_REQ))
		return "the backend does not offer BACKEND_REQ: it cannot ask for translations";
	return NULL;
}

static const char *family_lacks(const struct check_applies *a, const struct check_scenario *s)
{
	if (s->value[AXIS_STEPS] == STEPS_RECONNECT && a->one_connection)
		return "there is one connection only, which cannot be made again";
	if (s->family == FAMILY_IOMMU)
		return iommu_lacks(a);
	return s->family == FAMILY_RESTART ? restart_lacks(a) : NULL;
}

const char *check_applies_not(const struct check_applies *a, const struct check_scenario *s)
{
	const char *why = backend_lacks(a);

	if (!why)
		why = connection_lacks(a, s->value);
	if (!why)
		why = queue_lacks(a, s->value);
	if (!why)
		why = family_lacks(a, s);
	return why ? why : s->device->lacks(a, s);
}
