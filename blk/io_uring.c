/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mutant.h"
#include "blk/engine.h"
#include "blk/mutant.h"

/*
 * One ring for each queue. Kick and control eventfds are watched by multishot polls in the same
 * ring. Such a poll completes at each write to the eventfd, whether or not the eventfd is read in
 * between, so the counters are never read: that is one system call less for each kick.
 */

#define RING_ENTRIES 512

/* user_data of what is no I/O, which has pointers. */
enum {
	TAG_KICK = 1,
	TAG_CONTROL,
	TAG_CANCEL
};

struct uring {
	struct blk_engine base;
	struct io_uring ring;
	bool fixed_file;
	bool kick_armed, control_armed, cancelling;
};

static struct uring *uring_of(struct blk_engine *e)
{
	return (struct uring *)e;
}

static void uring_destroy(struct blk_engine *e)
{
	io_uring_queue_exit(&uring_of(e)->ring);
	free(e);
}

static struct io_uring_sqe *get_sqe(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (sqe)
		return sqe;
	io_uring_submit(&u->ring);
	return io_uring_get_sqe(&u->ring);
}

static void prepare(const struct uring *u, struct io_uring_sqe *sqe, const struct blk_io *io)
{
	int fd = u->fixed_file ? 0 : u->base.img->fd;

	switch (io->op) {
	case BLK_READ:
		if (io->niov == 1)
			io_uring_prep_read(sqe, fd, io->iov->iov_base, io->iov->iov_len,
					   io->offset);
		else
			io_uring_prep_readv(sqe, fd, io->iov, io->niov, io->offset);
		break;
	case BLK_WRITE:
		if (io->niov == 1)
			io_uring_prep_write(sqe, fd, io->iov->iov_base, io->iov->iov_len,
					    io->offset);
		else
			io_uring_prep_writev(sqe, fd, io->iov, io->niov, io->offset);
		sqe->rw_flags = io->stable ? RWF_DSYNC : 0;
		break;
	case BLK_FLUSH:
		io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
		break;
	case BLK_DISCARD:
	case BLK_ZERO:
		io_uring_prep_fallocate(sqe, fd, blk_image_fallocate_mode(io), io->offset, io->len);
		break;
	}
	if (u->fixed_file)
		io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
}

static void uring_start(struct blk_engine *e, struct blk_io *io)
{
	struct uring *u = uring_of(e);
	struct io_uring_sqe *sqe;

	/* Block devices are discarded and zeroed by ioctl(), which has no place in a ring. */
	if (e->img->is_device && (io->op == BLK_DISCARD || io->op == BLK_ZERO)) {
		blk_engine_complete(e, io, blk_image_run(e->img, io));
		return;
	}
	sqe = get_sqe(u);
	if (!sqe) {
		blk_engine_complete(e, io, -EBUSY);
		return;
	}
	prepare(u, sqe, io);
	blk_mutant_submit(sqe);
	io_uring_sqe_set_data(sqe, io);
}

static void arm(struct uring *u, int fd, uint64_t tag, bool *armed)
{
	struct io_uring_sqe *sqe;

	if (*armed || fd < 0)
		return;
	sqe = get_sqe(u);
	if (!sqe)
		return;
	io_uring_prep_poll_multishot(sqe, fd, POLLIN);
	io_uring_sqe_set_data64(sqe, tag);
	*armed = true;
}

static void poll_done(struct uring *u, const struct io_uring_cqe *cqe)
{
	bool kick = cqe->user_data == TAG_KICK;

	if (!(cqe->flags & IORING_CQE_F_MORE))
		*(kick ? &u->kick_armed : &u->control_armed) = false;
	if (kick && (cqe->res < 0 || !(cqe->res & POLLIN)))
		u->base.kick_fd = -1;
}

static void reap(struct uring *u)
{
	struct io_uring_cqe *cqe;
	unsigned int head, n = 0;

	io_uring_for_each_cqe(&u->ring, head, cqe)
	{
		if (cqe->user_data == TAG_KICK || cqe->user_data == TAG_CONTROL)
			poll_done(u, cqe);
		else if (cqe->user_data == TAG_CANCEL)
			u->cancelling = false;
		else
			blk_engine_complete(&u->base, io_uring_cqe_get_data(cqe), cqe->res);
		n++;
	}
	io_uring_cq_advance(&u->ring, n);
}

static int wait_for_event(struct uring *u, int64_t wait_ns)
{
	struct __kernel_timespec ts = {wait_ns / 1000000000, wait_ns % 1000000000};
	struct io_uring_cqe *cqe;

	arm(u, u->base.control_fd, TAG_CONTROL, &u->control_armed);
	arm(u, u->base.kick_fd, TAG_KICK, &u->kick_armed);
	return io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, wait_ns < 0 ? NULL : &ts, NULL);
}

static int uring_run(struct blk_engine *e, int64_t wait_ns)
{
	struct uring *u = uring_of(e);
	struct io_uring_cqe *cqe;
	int ret = 0;

	if (wait_ns && !e->done)
		ret = wait_for_event(u, wait_ns);
	else if (io_uring_sq_ready(&u->ring))
		ret = io_uring_submit_and_get_events(&u->ring);
	else
		io_uring_peek_cqe(&u->ring, &cqe);
	reap(u);
	/* The kernel was short of something for a moment; what it did not take stays in the ring.
	 */
	if (ret >= 0 || ret == -ETIME || ret == -EINTR || ret == -EAGAIN || ret == -EBUSY)
		return 0;
	return silt_err_sys(-ret, "io_uring_enter");
}

static int cancel_kick(struct uring *u)
{
	struct io_uring_sqe *sqe = get_sqe(u);

	if (!sqe)
		return silt_err(EBUSY, "the ring is full");
	io_uring_prep_cancel64(sqe, TAG_KICK, 0);
	io_uring_sqe_set_data64(sqe, TAG_CANCEL);
	u->cancelling = true;
	return 0;
}

/*
 * Until the poll has completed for the last time the ring holds the eventfd. A poll that is being
 * woken by a kick at the moment is not cancelled: then another try is made.
 */
static int uring_detach(struct blk_engine *e)
{
	struct uring *u = uring_of(e);
	int ret = 0;

	e->kick_fd = -1;
	while (u->kick_armed) {
		if (!u->cancelling)
			ret = cancel_kick(u);
		if (ret < 0)
			return ret;
		ret = io_uring_submit_and_wait(&u->ring, 1);
		reap(u);
		if (ret < 0 && ret != -EINTR && ret != -EAGAIN && ret != -EBUSY)
			return silt_err_sys(-ret, "io_uring_enter");
		ret = 0;
	}
	return 0;
}

static const struct blk_engine_ops uring_ops = {
	.name = "io_uring",
	.destroy = uring_destroy,
	.detach = uring_detach,
	.start = uring_start,
	.run = uring_run,
};

/* The flags that suit one thread which submits and reaps, as far as the kernel knows them. */
static int init_ring(struct io_uring *ring)
{
	static const unsigned int flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		0,
	};
	int ret = -EINVAL;

	for (unsigned int i = 0; ret == -EINVAL && i < sizeof(flags) / sizeof(flags[0]); i++)
		ret = io_uring_queue_init(RING_ENTRIES, ring, flags[i] | IORING_SETUP_R_DISABLED);
	if (ret == -EPERM)
		return silt_err(EPERM, "io_uring is switched off here (sysctl "
				       "kernel.io_uring_disabled, or a seccomp filter)");
	if (ret == -ENOSYS)
		return silt_err(ENOSYS,
				"this kernel has no io_uring, or a seccomp filter hides it");
	if (ret < 0)
		return silt_err_sys(-ret, "io_uring cannot be set up");
	return 0;
}

/* Waits with a timeout came with 5.11; multishot polls with 5.13, as resource tags did. */
static int probe(struct io_uring *ring)
{
	static const int needed[] = {IORING_OP_READ,	IORING_OP_WRITE, IORING_OP_READV,
				     IORING_OP_WRITEV,	IORING_OP_FSYNC, IORING_OP_FALLOCATE,
				     IORING_OP_POLL_ADD};
	struct io_uring_probe *p = io_uring_get_probe_ring(ring);
	bool ok = p && (ring->features & IORING_FEAT_EXT_ARG) &&
		  (ring->features & IORING_FEAT_RSRC_TAGS);

	for (unsigned int i = 0; ok && i < sizeof(needed) / sizeof(needed[0]); i++)
		ok = io_uring_opcode_supported(p, needed[i]);
	io_uring_free_probe(p);
	return ok ? 0 : silt_err(ENOSYS, "this kernel's io_uring is older than 5.13");
}

/* liburing before 2.4 has these two in its headers, and does not export them. */
static int ring_register(struct io_uring *ring, unsigned int op, void *arg, unsigned int n)
{
	return syscall(SYS_io_uring_register, ring->ring_fd, op, arg, n);
}

/*
 * A system call filter does not see what is submitted to a ring: so the ring itself is told, once
 * for all, what it may do.
 */
static int restrict_ring(struct io_uring *ring)
{
	struct io_uring_restriction only[] = {
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ},
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READV},
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_WRITE},
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_WRITEV},
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_FSYNC},
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_FALLOCATE},
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_POLL_ADD},
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_ASYNC_CANCEL},
		{.opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED, .sqe_flags = IOSQE_FIXED_FILE},
	};

	if ((!SILT_FAULT(ring_unrestricted) &&
	     ring_register(ring, IORING_REGISTER_RESTRICTIONS, only,
			   sizeof(only) / sizeof(only[0])) < 0) ||
	    ring_register(ring, IORING_REGISTER_ENABLE_RINGS, NULL, 0) < 0)
		return silt_err_sys(errno, "an io_uring cannot be restricted");
	return 0;
}

int blk_uring_create(const struct blk_image *img, int control_fd, struct blk_engine **out)
{
	struct uring *u = calloc(1, sizeof(*u));
	int ret;

	if (!u)
		return silt_err(ENOMEM, "no memory for an I/O engine");
	ret = init_ring(&u->ring);
	if (ret < 0)
		goto free;
	ret = probe(&u->ring);
	if (ret < 0)
		goto exit;
	/* Both save a lookup for each system call, and are no loss where they fail. */
	u->fixed_file = io_uring_register_files(&u->ring, &img->fd, 1) == 0;
	u->base.entered_by_fd = io_uring_register_ring_fd(&u->ring) != 1;
	ret = restrict_ring(&u->ring);
	if (ret < 0)
		goto exit;
	blk_engine_init(&u->base, &uring_ops, img, control_fd);
	*out = &u->base;
	return 0;
exit:
	io_uring_queue_exit(&u->ring);
free:
	free(u);
	return ret;
}
