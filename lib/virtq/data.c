/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/err.h"
#include "virtq/marks.h"
#include "virtq/queue.h"

/* A byte range of some segments, taken piece by piece. */
struct cursor {
	const struct silt_virtq_elem *elem;
	unsigned int seg; /* of the next piece */
	unsigned int end; /* one past the last segment */
	uint64_t off;	  /* bytes from the start of seg */
	uint64_t len;	  /* bytes to go */
};

/* Bytes of the next piece, which starts at byte c->off of segment c->seg; 0 at the end. */
static uint64_t next_piece(struct cursor *c)
{
	while (c->len && c->seg < c->end) {
		uint64_t size = c->elem->iov[c->seg].iov_len;

		if (c->off < size)
			return c->len < size - c->off ? c->len : size - c->off;
		c->off -= size;
		c->seg++;
	}
	return 0;
}

static void advance(struct cursor *c, uint64_t n)
{
	c->off += n;
	c->len -= n;
}

static char *piece_address(const struct cursor *c)
{
	return (char *)c->elem->iov[c->seg].iov_base + c->off;
}

static struct cursor writable(const struct silt_virtq_elem *elem, uint64_t off, uint64_t len)
{
	return (struct cursor){
		.elem = elem,
		.seg = elem->nread,
		.end = elem->nread + elem->nwrite,
		.off = off,
		.len = len,
	};
}

static int check_range(const char *what, uint64_t off, uint64_t len, uint64_t size)
{
	if (!silt_range_within(off, len, 0, size))
		return silt_err(EINVAL, "%llu bytes at offset %llu are not inside %llu %s bytes",
				(unsigned long long)len, (unsigned long long)off,
				(unsigned long long)size, what);
	return 0;
}

static int access_fault(const struct cursor *c)
{
	return silt_err(EFAULT, "guest memory at %#llx cannot be accessed",
			(unsigned long long)(c->elem->gpa[c->seg] + c->off));
}

int silt_virtq_read(struct silt_virtq *vq, const struct silt_virtq_elem *elem, uint64_t off,
		    void *buf, uint64_t len)
{
	struct cursor c = {.elem = elem, .end = elem->nread, .off = off, .len = len};
	char *dst = buf;
	uint64_t n;
	int ret;

	(void)vq;
	ret = check_range("device-readable", off, len, elem->read_len);
	if (ret < 0)
		return ret;
	while ((n = next_piece(&c))) {
		if (!silt_access_copy(dst, piece_address(&c), n))
			return access_fault(&c);
		dst += n;
		advance(&c, n);
	}
	return 0;
}

int silt_virtq_write(struct silt_virtq *vq, const struct silt_virtq_elem *elem, uint64_t off,
		     const void *buf, uint64_t len)
{
	struct cursor c = writable(elem, off, len);
	const char *src = buf;
	uint64_t n;
	int ret;

	ret = check_range("device-writable", off, len, elem->write_len);
	if (ret < 0)
		return ret;
	while ((n = next_piece(&c))) {
		bool ok = silt_access_copy(piece_address(&c), src, n);

		silt_mark_data(vq, elem, c.seg, c.off, n);
		if (!ok)
			return access_fault(&c);
		src += n;
		advance(&c, n);
	}
	return 0;
}

void silt_virtq_wrote(struct silt_virtq *vq, const struct silt_virtq_elem *elem, uint64_t off,
		      uint64_t len)
{
	struct cursor c = writable(elem, off, len);
	uint64_t n;

	while ((n = next_piece(&c))) {
		silt_mark_data(vq, elem, c.seg, c.off, n);
		advance(&c, n);
	}
}
