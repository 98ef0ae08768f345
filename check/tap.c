/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "check/tap.h"

#define SOCKET_SIZE (16 << 20)

/* ---- Making it ------------------------------------------------------------------------------- */

static int open_tap(struct check_tap *tap, struct ifreq *interface)
{
	int header = sizeof(struct virtio_net_hdr_v1);

	*interface = (struct ifreq){.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	tap->fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (tap->fd < 0)
		return silt_err_sys(errno, "cannot open /dev/net/tun");
	if (ioctl(tap->fd, TUNSETIFF, interface) || ioctl(tap->fd, TUNSETVNETHDRSZ, &header))
		return silt_err_sys(errno, "cannot make a tap");
	return 0;
}

/* So that nothing is on the wire but what the driver sent. */
static int silence_ipv6(const struct ifreq *interface)
{
	char path[64 + IFNAMSIZ];
	int fd, ret = 0;

	snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/%s/disable_ipv6",
		 interface->ifr_name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : silt_err_sys(errno, "cannot open %s", path);
	if (write(fd, "1", 1) != 1)
		ret = silt_err_sys(errno, "cannot write %s", path);
	close(fd);
	return ret;
}

static int open_packets(struct check_tap *tap, struct ifreq *interface)
{
	struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
	int size = SOCKET_SIZE, on = 1;

	tap->packets = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (tap->packets < 0 || ioctl(tap->packets, SIOCGIFINDEX, interface))
		return silt_err_sys(errno, "cannot look into the tap");
	address.sll_ifindex = interface->ifr_ifindex;
	if (setsockopt(tap->packets, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) ||
	    setsockopt(tap->packets, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) ||
	    setsockopt(tap->packets, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)) ||
	    bind(tap->packets, (struct sockaddr *)&address, sizeof(address)))
		return silt_err_sys(errno, "cannot look into the tap");
	interface->ifr_flags = IFF_UP;
	if (ioctl(tap->packets, SIOCSIFFLAGS, interface))
		return silt_err_sys(errno, "cannot bring the tap up");
	return 0;
}

static int make(struct check_tap *tap)
{
	struct ifreq interface;
	int ret;

	/* That of this thread; files that are opened in it stay there. */
	if (unshare(CLONE_NEWNET))
		return silt_err_sys(errno, "cannot make a network namespace");
	ret = open_tap(tap, &interface);
	if (ret == 0)
		ret = silence_ipv6(&interface);
	return ret < 0 ? ret : open_packets(tap, &interface);
}

/* ---- What it does ---------------------------------------------------------------------------- */

static void swap_addresses(uint8_t *frame)
{
	uint8_t to[ETH_ALEN];

	memcpy(to, frame, ETH_ALEN);
	memcpy(frame, frame + ETH_ALEN, ETH_ALEN);
	memcpy(frame + ETH_ALEN, to, ETH_ALEN);
}

/* The tap takes what its queue has room for; what is lost on the way is lost, as on any wire. */
static void reflect(struct check_tap *tap)
{
	struct sockaddr_ll from;
	socklen_t len = sizeof(from);
	ssize_t n = recvfrom(tap->packets, tap->frame, sizeof(tap->frame), 0,
			     (struct sockaddr *)&from, &len);

	if (n < ETH_HLEN || from.sll_pkttype == PACKET_OUTGOING)
		return;
	swap_addresses(tap->frame);
	sendto(tap->packets, tap->frame, n, 0, NULL, 0);
}

static void *work(void *arg)
{
	struct check_tap *tap = arg;
	struct pollfd wait[2];

	silt_failure_note(&tap->failure, make(tap));
	wait[0] = (struct pollfd){.fd = tap->packets, .events = POLLIN};
	wait[1] = (struct pollfd){.fd = tap->stop, .events = POLLIN};
	pthread_barrier_wait(&tap->made);
	while (tap->failure.ret == 0 && !wait[1].revents) {
		if (poll(wait, 2, -1) < 0 && errno != EINTR)
			break;
		if (wait[0].revents)
			reflect(tap);
	}
	return NULL;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void close_tap(struct check_tap *tap)
{
	close_fd(tap->packets);
	close_fd(tap->fd);
	close_fd(tap->stop);
	pthread_barrier_destroy(&tap->made);
	free(tap);
}

int check_tap_create(struct check_tap **out)
{
	struct check_tap *tap = calloc(1, sizeof(*tap));
	int ret;

	if (!tap)
		return silt_err_sys(ENOMEM, "cannot make a tap");
	tap->fd = tap->packets = -1;
	pthread_barrier_init(&tap->made, NULL, 2);
	tap->stop = eventfd(0, EFD_CLOEXEC);
	if (tap->stop < 0)
		ret = silt_err_sys(errno, "cannot make an eventfd");
	else
		ret = -pthread_create(&tap->thread, NULL, work, tap);
	if (ret < 0) {
		close_tap(tap);
		return silt_err_sys(-ret, "cannot start the tap's thread");
	}
	pthread_barrier_wait(&tap->made);
	if (tap->failure.ret < 0) {
		ret = silt_failure_tell(&tap->failure);
		check_tap_destroy(tap);
		return ret;
	}
	*out = tap;
	return 0;
}

void check_tap_destroy(struct check_tap *tap)
{
	const uint64_t one = 1;

	if (!tap)
		return;
	if (write(tap->stop, &one, sizeof(one)) == sizeof(one))
		pthread_join(tap->thread, NULL);
	close_tap(tap);
}
