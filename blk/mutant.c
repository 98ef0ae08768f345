/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <liburing.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mutant.h"
#include "blk/mutant.h"
#include "blk/notice.h"

static unsigned int parks[BLK_MAX_QUEUES];

/* What a process that was taken over would try. */
static void escape(void)
{
	int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);

	blk_notice(fd < 0 ? "caught" : "escaped");
	if (fd >= 0)
		close(fd);
}

/* A ring of its own would do whatever it is told to. */
static void escape_by_ring(void)
{
	struct io_uring_params params = {0};

	blk_notice(syscall(SYS_io_uring_setup, 4, &params) < 0 ? "caught" : "escaped");
}

/* One that a monitor passed would do it, too: any file descriptor stands for it. */
static void escape_by_passed_ring(void)
{
	blk_notice(syscall(SYS_io_uring_enter, 0, 0, 0, 0, NULL, 0) < 0 ? "caught" : "escaped");
}

/* On x86-64 a number of the x32 ABI, and nowhere one that is in use. */
static void escape_by_abi(void)
{
	blk_notice(syscall(0x40000000 | SYS_getppid) < 0 ? "caught" : "escaped");
}

/* The ring that is there may not open files, unless it was not told so. */
void blk_mutant_submit(struct io_uring_sqe *sqe)
{
	if (SILT_FAULT(sandbox_escape_sqe) || SILT_FAULT(ring_unrestricted))
		io_uring_prep_openat(sqe, AT_FDCWD, "/etc/passwd", O_RDONLY, 0);
}

bool blk_mutant_begin(struct blk_queue *q, struct blk_request *req)
{
	req->born = parks[q->index];
	if (SILT_FAULT(die_on_request))
		raise(SIGSEGV);
	if (SILT_FAULT(sandbox_escape))
		escape();
	if (SILT_FAULT(sandbox_escape_ring))
		escape_by_ring();
	if (SILT_FAULT(sandbox_escape_enter))
		escape_by_passed_ring();
	if (SILT_FAULT(sandbox_escape_abi))
		escape_by_abi();
	return SILT_FAULT(hang_on_flush) && req->type == VIRTIO_BLK_T_FLUSH;
}

void blk_mutant_parked(struct blk_queue *q)
{
	parks[q->index]++;
}

static bool unlogged(const struct blk_queue *q, const struct blk_request *req)
{
	return (SILT_FAULT(second_queue_unlogged) && q->index > 0) ||
	       (SILT_FAULT(inflight_toggle) && req->born != parks[q->index]);
}

/* Store without a mark. */
static void scatter(const struct silt_virtq_elem *elem, uint64_t off, const void *buf, uint64_t len)
{
	const uint8_t *from = buf;

	for (unsigned int i = elem->nread; len && i < elem->nread + elem->nwrite; i++) {
		uint64_t room = elem->iov[i].iov_len;
		uint64_t n;

		if (off >= room) {
			off -= room;
			continue;
		}
		n = len < room - off ? len : room - off;
		memcpy((uint8_t *)elem->iov[i].iov_base + off, from, n);
		from += n;
		len -= n;
		off = 0;
	}
}

/* Mark the eight pages around the first page of each segment, as if log bytes were set whole. */
static void mark_eights(struct blk_queue *q, const struct silt_virtq_elem *elem)
{
	for (unsigned int i = elem->nread; i < elem->nread + elem->nwrite; i++) {
		struct iovec iov = {elem->iov[i].iov_base, 8 * SILT_LOG_PAGE_SIZE};
		uint64_t gpa = elem->gpa[i] & ~(8 * SILT_LOG_PAGE_SIZE - 1);
		struct silt_virtq_elem eight = {.head = elem->head,
						.nwrite = 1,
						.write_len = iov.iov_len,
						.iov = &iov,
						.gpa = &gpa};

		silt_virtq_wrote(q->vq, &eight, 0, iov.iov_len);
	}
}

/* Mark only the pages that [@off, @off + @len) covers from end to end. */
static void mark_whole_pages(struct blk_queue *q, const struct silt_virtq_elem *elem, uint64_t off,
			     uint64_t len)
{
	uint64_t base = 0;

	for (unsigned int i = elem->nread; i < elem->nread + elem->nwrite; i++) {
		uint64_t size = elem->iov[i].iov_len;
		uint64_t from = off > base ? off - base : 0;
		uint64_t to = off + len > base ? off + len - base : 0;

		if (to > size)
			to = size;
		from += -(elem->gpa[i] + from) % SILT_LOG_PAGE_SIZE;
		to -= (elem->gpa[i] + to) % SILT_LOG_PAGE_SIZE < to
			      ? (elem->gpa[i] + to) % SILT_LOG_PAGE_SIZE
			      : to;
		if (from < to)
			silt_virtq_wrote(q->vq, elem, base + from, to - from);
		base += size;
	}
}

void blk_mutant_reading(struct blk_queue *q, struct blk_request *req)
{
	if (!SILT_FAULT(early_mark))
		return;
	silt_virtq_wrote(q->vq, req->elem, 0, req->total);
	silt_virtq_flush(q->vq);
}

bool blk_mutant_data(struct blk_queue *q, struct blk_request *req, uint64_t off, uint64_t len)
{
	if (SILT_FAULT(wrong_data)) {
		const uint8_t wrong[] = "wrong";

		scatter(req->elem, off, wrong, len < sizeof(wrong) ? len : sizeof(wrong));
	}
	if (SILT_FAULT(over_log))
		mark_eights(q, req->elem);
	if (SILT_FAULT(partial_page)) {
		mark_whole_pages(q, req->elem, off, len);
		return true;
	}
	return SILT_FAULT(early_mark) || SILT_FAULT(data_read_unlogged) || unlogged(q, req);
}

bool blk_mutant_status(struct blk_queue *q, struct blk_request *req, uint8_t status)
{
	if (SILT_FAULT(over_log))
		mark_eights(q, req->elem);
	if (!SILT_FAULT(status_unlogged) &&
	    !(SILT_FAULT(error_path_unlogged) && status != VIRTIO_BLK_S_OK) && !unlogged(q, req))
		return false;
	scatter(req->elem, req->elem->write_len - 1, &status, sizeof(status));
	return true;
}

bool blk_mutant_id(struct blk_queue *q, struct blk_request *req, uint64_t len)
{
	if (!SILT_FAULT(getid_unlogged) && !unlogged(q, req))
		return false;
	scatter(req->elem, 0, q->disk->serial, len);
	return true;
}
