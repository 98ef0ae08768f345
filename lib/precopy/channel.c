/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "precopy/channel.h"

/* What a frame that was begun, and a last word, may take once nobody waits for them any more. */
#define GRACE_NS UINT64_C(1000000000)

/*
 * Who is woken up for every packet costs the sender, on whose processor that is, a good part of its
 * time. So a reader that waits for much sleeps until there is that much, but no longer than this.
 */
#define LULL_NS	 200000
#define LULL_MIN 16384u
#define LULL_MAX 1048576u

/* A deadline in monotonic time; 0: none. */
static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t deadline_in(uint64_t ns)
{
	uint64_t deadline;

	if (!ns)
		return 0;
	return __builtin_add_overflow(now_ns(), ns, &deadline) ? UINT64_MAX : deadline;
}

/* For poll(): milliseconds until @deadline, rounded up. */
static int left_ms(uint64_t deadline)
{
	uint64_t now = now_ns(), ms;

	if (!deadline)
		return -1;
	if (now >= deadline)
		return 0;
	ms = (deadline - now + 999999) / 1000000;
	return ms > 1000000 ? 1000000 : (int)ms;
}

static int check_socket(int fd)
{
	socklen_t len = sizeof(int);
	int type;

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return silt_err_sys(errno, "descriptor %d of the channel", fd);
	if (type != SOCK_STREAM)
		return silt_err(EINVAL,
				"descriptor %d of the channel is a socket of type %d, not "
				"a stream",
				fd, type);
	return 0;
}

int precopy_channel_open(struct precopy_channel *c, const struct silt_channel *is,
			 uint64_t timeout_ns)
{
	static const struct silt_channel none = {.size = sizeof(none), .fd = -1};
	int ret;

	is = is ? is : &none;
	if (is->size != sizeof(*is))
		return silt_err(EINVAL, "the channel has a size of %zu bytes, not %zu", is->size,
				sizeof(*is));
	if (!is->write != !is->read)
		return silt_err(EINVAL, "the channel has only one of write and read");
	ret = is->write || is == &none ? 0 : check_socket(is->fd);
	if (ret < 0)
		return ret;
	*c = (struct precopy_channel){.is = *is, .timeout_ns = timeout_ns};
	c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->wake < 0)
		return silt_err_sys(errno, "an eventfd for the channel");
	return 0;
}

void precopy_channel_close(struct precopy_channel *c)
{
	if (c->wake >= 0)
		close(c->wake);
}

void precopy_channel_cancel(struct precopy_channel *c)
{
	int saved = errno;
	uint64_t one = 1;
	ssize_t ret;

	__atomic_store_n(&c->cancelled, 1, __ATOMIC_SEQ_CST);
	/* It fails only where the counter is full: then the descriptor is readable already. */
	ret = write(c->wake, &one, sizeof(one));
	(void)ret;
	errno = saved;
}

bool precopy_channel_cancelled(const struct precopy_channel *c)
{
	return __atomic_load_n(&c->cancelled, __ATOMIC_SEQ_CST);
}

static int cancelled(void)
{
	return silt_err(ECANCELED, "the migration was cancelled");
}

/*
 * Wait for the socket. Nobody speaks while the other does, but for a last word: then it does not
 * listen any more.
 *
 * Return: 0 try again; -ECANCELED only where @may_cancel; -ETIMEDOUT; -ECONNRESET; -errno.
 */
static int await(struct precopy_channel *c, short event, bool may_cancel, uint64_t deadline)
{
	struct pollfd fds[2] = {{.fd = c->is.fd, .events = event | (may_cancel ? POLLIN : 0)},
				{.fd = may_cancel ? c->wake : -1, .events = POLLIN}};
	int ret = poll(fds, 2, left_ms(deadline));

	if (ret < 0 && errno != EINTR)
		return silt_err_sys(errno, "waiting for the channel");
	if (may_cancel && precopy_channel_cancelled(c))
		return cancelled();
	if (ret > 0 && event == POLLOUT && (fds[0].revents & (POLLIN | POLLOUT)) == POLLIN)
		return silt_err(ECONNRESET, "the peer does not take any more");
	if (!ret && !left_ms(deadline))
		return silt_err(ETIMEDOUT, "the peer %s nothing in time",
				event == POLLIN ? "sent" : "took");
	return 0;
}

static void set_low_water(struct precopy_channel *c, int bytes)
{
	/* Of a socket that has no such mark poll() ends sooner, which does no harm. */
	setsockopt(c->is.fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

/* Let @n bytes gather for a short while; @may_cancel as in await(), which looks at it. */
static void lull(struct precopy_channel *c, size_t n, bool may_cancel)
{
	struct pollfd fds[2] = {{.fd = c->is.fd, .events = POLLIN},
				{.fd = may_cancel ? c->wake : -1, .events = POLLIN}};
	const struct timespec longest = {.tv_nsec = LULL_NS};

	set_low_water(c, n < LULL_MAX ? (int)n : (int)LULL_MAX);
	ppoll(fds, 2, &longest, NULL);
	set_low_water(c, 1);
}

static int gone(int err)
{
	if (err == EPIPE || err == ECONNRESET)
		return silt_err(ECONNRESET, "the peer closed the connection");
	return silt_err_sys(err, "the channel");
}

/* By the caller's function. */
static int64_t write_apart(struct precopy_channel *c, const struct iovec *iov, int n)
{
	int64_t ret = c->is.write(c->is.opaque, iov, n);
	uint64_t bytes = 0;
	int i;

	if (ret < 0)
		return silt_err_sys(silt_callback_errno(ret), "the channel's write");
	for (i = 0; i < n; i++)
		bytes += iov[i].iov_len;
	if (!ret || (uint64_t)ret > bytes)
		return silt_err(EPROTO, "the channel's write took %" PRId64 " bytes of %" PRIu64,
				ret, bytes);
	return ret;
}

/* What can be written now. Return: bytes, 0 none; -errno. */
static int64_t write_some(struct precopy_channel *c, struct iovec *iov, int n)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)n};
	int64_t ret;

	if (c->is.write)
		return write_apart(c, iov, n);
	ret = sendmsg(c->is.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (ret >= 0 || errno == EINTR || errno == EAGAIN)
		return ret < 0 ? 0 : ret;
	return gone(errno);
}

/* Leave out the first @n bytes. Return: how many buffers are left, moved to the front. */
static int advance(struct iovec *iov, int niov, uint64_t n)
{
	int i = 0;

	while (i < niov && n >= iov[i].iov_len)
		n -= iov[i++].iov_len;
	if (i == niov)
		return 0;
	iov[i].iov_base = (char *)iov[i].iov_base + n;
	iov[i].iov_len -= n;
	memmove(iov, iov + i, (size_t)(niov - i) * sizeof(*iov));
	return niov - i;
}

/*
 * A frame that was begun is finished though it was cancelled, so that the peer can be told why; but
 * then it has a short while only.
 */
static int write_all(struct precopy_channel *c, struct iovec *iov, int n, bool may_cancel,
		     uint64_t timeout_ns, uint64_t *taken)
{
	uint64_t deadline = deadline_in(timeout_ns);
	bool hurry = false;
	int64_t ret;

	while (n) {
		ret = write_some(c, iov, n);
		if (ret > 0) {
			*taken += (uint64_t)ret;
			n = advance(iov, n, (uint64_t)ret);
			if (!hurry)
				deadline = deadline_in(timeout_ns);
			continue;
		}
		if (!ret)
			ret = await(c, POLLOUT, may_cancel, deadline);
		if (ret == -ECANCELED && may_cancel && *taken) {
			may_cancel = false;
			hurry = true;
			deadline = deadline_in(GRACE_NS);
			ret = 0;
		}
		if (ret < 0)
			return (int)ret;
	}
	return 0;
}

static int write_frame(struct precopy_channel *c, const struct wire_header *header,
		       const void *payload, bool may_cancel, uint64_t timeout_ns, uint64_t *taken)
{
	struct iovec iov[] = {
		{.iov_base = (void *)header, .iov_len = sizeof(*header)},
		{.iov_base = (void *)payload, .iov_len = header->length},
	};
	int ret;

	*taken = 0;
	if (c->broken)
		return silt_err(ECONNRESET, "the channel is of no use any more");
	if (may_cancel && precopy_channel_cancelled(c))
		return cancelled();
	ret = write_all(c, iov, header->length ? 2 : 1, may_cancel, timeout_ns, taken);
	c->broken = ret < 0 && (*taken || ret != -ECANCELED);
	c->bytes_sent += *taken;
	c->sent += !ret;
	return ret;
}

int precopy_channel_write(struct precopy_channel *c, const struct wire_header *header,
			  const void *payload, enum precopy_insist insist, uint64_t *taken)
{
	return write_frame(c, header, payload, insist == PRECOPY_MAY_CANCEL, c->timeout_ns, taken);
}

int precopy_channel_send(struct precopy_channel *c, enum wire_type type, const void *payload,
			 uint32_t length, enum precopy_insist insist)
{
	struct wire_header header;
	uint64_t taken;

	precopy_wire_seal(&header, type, c->sent, payload, length);
	return precopy_channel_write(c, &header, payload, insist, &taken);
}

void precopy_channel_refuse(struct precopy_channel *c, int error, const char *why)
{
	struct {
		struct wire_refuse refuse;
		char why[WIRE_MAX_REASON];
	} payload = {.refuse.error = (uint32_t)-error};
	size_t n = strnlen(why, WIRE_MAX_REASON);
	struct wire_header header;
	uint64_t taken;

	memcpy(payload.why, why, n);
	n += offsetof(typeof(payload), why);
	precopy_wire_seal(&header, WIRE_REFUSE, c->sent, &payload, (uint32_t)n);
	write_frame(c, &header, &payload, false, GRACE_NS, &taken);
	c->broken = true;
}

/* What can be read now. Return: bytes, 0 none; -errno, -ECONNRESET the stream ended. */
static int64_t read_some(struct precopy_channel *c, void *buf, size_t n)
{
	int64_t ret;

	if (c->is.read) {
		ret = c->is.read(c->is.opaque, buf, n);
		if (ret < 0)
			return silt_err_sys(silt_callback_errno(ret), "the channel's read");
	} else {
		ret = recv(c->is.fd, buf, n, MSG_DONTWAIT);
		if (ret < 0 && (errno == EINTR || errno == EAGAIN))
			return 0;
		if (ret < 0)
			return gone(errno);
	}
	if ((uint64_t)ret > n)
		return silt_err(EPROTO, "the channel's read gave %" PRId64 " bytes of %zu", ret, n);
	return ret ? ret : silt_err(ECONNRESET, "the peer closed the connection");
}

static int read_all(struct precopy_channel *c, void *buf, size_t n, bool may_cancel)
{
	uint64_t deadline = deadline_in(c->timeout_ns);
	bool waited = false;
	char *at = buf;
	int64_t ret;

	while (n) {
		if (may_cancel && precopy_channel_cancelled(c))
			return cancelled();
		ret = read_some(c, at, n);
		if (!ret && !waited && n + c->ahead >= LULL_MIN && !c->is.read) {
			lull(c, n + c->ahead, may_cancel);
			waited = true;
			continue;
		}
		if (!ret) {
			ret = await(c, POLLIN, may_cancel, deadline);
			if (ret < 0)
				return (int)ret;
			continue;
		}
		if (ret < 0)
			return (int)ret;
		waited = false;
		at += ret;
		n -= (size_t)ret;
		deadline = deadline_in(c->timeout_ns);
	}
	return 0;
}

int precopy_channel_read_header(struct precopy_channel *c, struct wire_header *header,
				enum precopy_insist insist)
{
	int ret = read_all(c, header, sizeof(*header), insist == PRECOPY_MAY_CANCEL);

	if (!ret)
		ret = precopy_wire_check_header(header, c->received);
	c->received += !ret;
	return ret;
}

int precopy_channel_read_payload(struct precopy_channel *c, const struct wire_header *header,
				 void *payload, enum precopy_insist insist)
{
	int ret = read_all(c, payload, header->length, insist == PRECOPY_MAY_CANCEL);

	return ret ? ret : precopy_wire_check_payload(header, payload);
}
