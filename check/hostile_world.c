/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <silt/access.h>

#include "base/err.h"
#include "check/hostile_world.h"

#define MIB   (UINT64_C(1) << 20)
#define GIB   (UINT64_C(1) << 30)
#define SHOWN 16 /* bytes of what was written */

/* One file of the world, and the stretch of it that a backend may write to. */
struct stretch {
	const char *name;
	int fd;
	uint64_t file_size; /* as it has to be */
	uint64_t start, size;
};

static uint8_t canary(uint64_t at)
{
	return (uint8_t)(at * 131 + (at >> 8) * 7 + 0x5b);
}

static int fill(int fd, uint64_t from, uint64_t to)
{
	uint8_t buf[GUEST_PAGE];
	uint64_t i, n;

	for (; from < to; from += n) {
		n = to - from < sizeof(buf) ? to - from : sizeof(buf);
		for (i = 0; i < n; i++)
			buf[i] = canary(from + i);
		if (pwrite(fd, buf, n, from) != (ssize_t)n)
			return silt_err_sys(errno, "cannot write canaries");
	}
	return 0;
}

/* A file with canaries around the bytes [@start, @start + @size). */
static int make_file(const char *name, uint64_t start, uint64_t size, uint64_t end)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), ret;

	if (fd < 0)
		return silt_err_sys(errno, "cannot make a file in memory");
	ret = ftruncate(fd, end) ? silt_err_sys(errno, "cannot make a file of %lu bytes", end) : 0;
	if (!ret)
		ret = fill(fd, 0, start);
	if (!ret)
		ret = fill(fd, start + size, end);
	if (ret < 0)
		close(fd);
	return ret < 0 ? ret : fd;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static const struct check_guest_region places[GUEST_SIDES] = {
	[GUEST_LOW] = {.gpa = MIB + 3 * GUEST_PAGE, .size = MIB},
	[GUEST_HIGH] = {.gpa = 4 * GIB + 5 * GUEST_PAGE, .size = MIB},
};

static uint8_t *map(uint64_t size, int flags, int fd, uint64_t offset)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, offset);
}

static int create_region(struct check_guest_region *r, uint64_t *file_size)
{
	r->file_offset = HOSTILE_MARGIN;
	r->end = r->size;
	*file_size = r->size + 2 * HOSTILE_MARGIN;
	r->fd = make_file("silt-check-memory", HOSTILE_MARGIN, r->size, *file_size);
	if (r->fd < 0)
		return r->fd;
	r->flat = r->mem = map(r->size, MAP_SHARED, r->fd, r->file_offset);
	r->before = map(r->size, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r->mem == MAP_FAILED || r->before == MAP_FAILED)
		return silt_err_sys(errno, "cannot map guest memory of %lu bytes", r->size);
	return silt_access_add_range(r->mem, r->size);
}

static uint64_t zone_offset(const struct check_hostile_world *w)
{
	const struct check_guest_region *low = &w->guest.region[GUEST_LOW];

	return low->file_offset + (w->zone - low->gpa);
}

int check_hostile_world_create(struct check_hostile_world *w)
{
	unsigned int i;
	int ret = 0;

	*w = (struct check_hostile_world){.log = {.fd = -1}};
	for (i = 0; i < GUEST_SIDES; i++) {
		w->guest.region[i] = places[i];
		w->guest.region[i].fd = -1;
		w->guest.region[i].mem = w->guest.region[i].before = w->guest.region[i].after =
			MAP_FAILED;
		w->guest.region[i].flat = w->guest.region[i].scattered = MAP_FAILED;
	}
	for (i = 0; i < GUEST_SIDES && !ret; i++)
		ret = create_region(&w->guest.region[i], &w->size[i]);
	if (ret < 0)
		return ret;
	/* Below all that descriptors lead to: a length that is too great does not reach it. */
	w->zone = check_guest_alloc(&w->guest, GUEST_LOW, 0, HOSTILE_ZONE);
	ret = fill(w->guest.region[GUEST_LOW].fd, zone_offset(w), zone_offset(w) + HOSTILE_ZONE);
	return ret < 0 ? ret : check_hostile_make_log(w, check_hostile_log_size(w), 0);
}

int check_hostile_world_seal(struct check_hostile_world *w)
{
	unsigned int i;

	for (i = 0; i < GUEST_SIDES; i++)
		if (fcntl(w->guest.region[i].fd, F_ADD_SEALS, F_SEAL_SHRINK))
			return silt_err_sys(errno, "cannot seal guest memory");
	return 0;
}

void check_hostile_world_destroy(struct check_hostile_world *w)
{
	struct check_guest_region *r;

	for (r = w->guest.region; r < w->guest.region + GUEST_SIDES; r++)
		if (r->mem != MAP_FAILED)
			silt_access_del_range(r->mem, r->size);
	check_guest_destroy(&w->guest);
	check_session_log_destroy(&w->log);
}

void check_hostile_world_free_pages(struct check_hostile_world *w)
{
	struct check_guest_region *low = &w->guest.region[GUEST_LOW];

	low->next = w->zone - low->gpa + HOSTILE_ZONE;
	w->guest.region[GUEST_HIGH].next = 0;
}

static int resize(int fd, uint64_t size, uint64_t *now)
{
	if (ftruncate(fd, size))
		return silt_err_sys(errno, "cannot change the size of a file to %lu", size);
	*now = size;
	return 0;
}

int check_hostile_resize_memory(struct check_hostile_world *w, enum check_guest_side side,
				uint64_t size)
{
	return resize(w->guest.region[side].fd, size, &w->size[side]);
}

/* ---- Log ------------------------------------------------------------------------------------- */

uint64_t check_hostile_log_size(const struct check_hostile_world *w)
{
	return (check_guest_end(&w->guest) / GUEST_PAGE + 63) / 64 * 8;
}

int check_hostile_make_log(struct check_hostile_world *w, uint64_t size, uint64_t shift)
{
	uint64_t start = HOSTILE_LOG_LEAD + shift;

	check_session_log_destroy(&w->log);
	w->log_file_size = start + size + HOSTILE_LOG_LEAD;
	w->log = (struct check_session_log){.size = size, .offset = start};
	w->log.fd = make_file("silt-check-log", start, size, w->log_file_size);
	return w->log.fd < 0 ? w->log.fd : 0;
}

int check_hostile_resize_log(struct check_hostile_world *w, uint64_t size)
{
	return resize(w->log.fd, size, &w->log_file_size);
}

/* ---- Canaries -------------------------------------------------------------------------------- */

static size_t print_bytes(char *buf, size_t len, const uint8_t *bytes, uint64_t n)
{
	size_t used = 0;
	uint64_t i;

	for (i = 0; i < n && i < SHOWN && used < len; i++)
		used += snprintf(buf + used, len - used, "%s%02x", i ? " " : "", bytes[i]);
	return used;
}

static void tell(const struct stretch *s, uint64_t at, const uint8_t *bytes, uint64_t n, char *why)
{
	uint64_t end = s->start + s->size;
	char place[96];
	size_t used;

	if (at < s->start)
		snprintf(place, sizeof(place), "%lu bytes before its start", s->start - at);
	else if (at >= end)
		snprintf(place, sizeof(place), "%lu bytes behind its end", at - end);
	else
		snprintf(place, sizeof(place), "at byte %lu, where no descriptor leads",
			 at - s->start);
	used = snprintf(why, HOSTILE_WHY_LEN,
			"it wrote outside: %s, offset 0x%lx of the file, %s: ", s->name, at, place);
	print_bytes(why + used, HOSTILE_WHY_LEN - used, bytes, n);
}

static bool check_canaries(const struct stretch *s, uint64_t from, uint64_t to, char *why)
{
	uint8_t buf[GUEST_PAGE];
	ssize_t i, n;

	if (to > s->file_size)
		to = s->file_size;
	for (; from < to; from += n) {
		n = pread(s->fd, buf, to - from < sizeof(buf) ? to - from : sizeof(buf), from);
		if (n <= 0)
			return true;
		for (i = 0; i < n; i++) {
			if (buf[i] == canary(from + i))
				continue;
			tell(s, from + i, buf + i, n - i, why);
			return false;
		}
	}
	return true;
}

/* Writing behind the end of a file that was cut makes it longer again. */
static bool check_size(const struct stretch *s, char *why)
{
	struct stat st;

	if (fstat(s->fd, &st) || (uint64_t)st.st_size == s->file_size)
		return true;
	snprintf(why, HOSTILE_WHY_LEN, "it wrote outside: the file of %s has %ld bytes, not %lu",
		 s->name, st.st_size, s->file_size);
	return false;
}

static bool check_stretch(const struct stretch *s, char *why)
{
	return check_size(s, why) && check_canaries(s, 0, s->start, why) &&
	       check_canaries(s, s->start + s->size, s->file_size, why);
}

static struct stretch memory_stretch(const struct check_hostile_world *w,
				     enum check_guest_side side)
{
	static const char *const names[GUEST_SIDES] = {"the low region of guest memory",
						       "the high region of guest memory"};
	const struct check_guest_region *r = &w->guest.region[side];

	return (struct stretch){names[side], r->fd, w->size[side], r->file_offset, r->size};
}

bool check_hostile_world_intact(const struct check_hostile_world *w, char why[HOSTILE_WHY_LEN])
{
	const struct stretch log = {"the dirty log", w->log.fd, w->log_file_size, w->log.offset,
				    w->log.size};
	const struct stretch low = memory_stretch(w, GUEST_LOW);
	const struct stretch high = memory_stretch(w, GUEST_HIGH);

	return check_stretch(&log, why) && check_stretch(&low, why) && check_stretch(&high, why) &&
	       check_canaries(&low, zone_offset(w), zone_offset(w) + HOSTILE_ZONE, why);
}
