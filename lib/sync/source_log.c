/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <silt/access.h>
#include <silt/bitmap.h>

#include "base/bitmap_kernels.h"
#include "base/err.h"
#include "base/mapping.h"
#include "base/mutant.h"
#include "sync/slot_list.h"
#include "sync/sync_internal.h"
#include "sync/wipe.h"

/* A page of the log, whatever the host's. */
#define LOG_PAGE_SHIFT 12

/* Words that a thread harvests at a time. */
#define PART_WORDS (UINT64_C(1) << 17)

struct log_file {
	int fd;
	uint64_t bytes; /* whole pages of the host, so whole words */
	struct silt_mapping mapping;
	uint64_t *words;
};

struct log_source {
	struct sync_source source;
	uint32_t address_space;
	silt_sync_replace_fn *replace;
	void *opaque;
	struct sync_slot_list slots; /* by address */
	struct log_file file;
	bool lost; /* marks of a log before could not be moved: every page of the slots counts */
};

static struct log_source *log_of(struct sync_source *src)
{
	return (struct log_source *)src;
}

/* ---- The file -------------------------------------------------------------------------------- */

/* Bytes of a log that reaches to guest address @last: whole pages of the host. */
static uint64_t bytes_for(uint64_t last)
{
	uint64_t host_page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (last / (host_page * 8 << LOG_PAGE_SHIFT) + 1) * host_page;
}

/* Peers must neither shrink it under each other, nor seal it against each other. */
static int seal(const struct log_file *file, const char *name)
{
	if (fcntl(file->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return silt_err_sys(errno, "source %s: cannot seal a dirty log", name);
	return 0;
}

static int file_fill(struct log_file *file, uint64_t bytes, const char *name)
{
	int ret;

	if (ftruncate(file->fd, (off_t)bytes) < 0)
		return silt_err_sys(errno,
				    "source %s: cannot make a dirty log of %" PRIu64 " bytes", name,
				    bytes);
	ret = seal(file, name);
	if (!ret)
		ret = silt_mapping_create(&file->mapping, file->fd, 0, bytes, name);
	if (ret)
		return ret;
	file->bytes = bytes;
	file->words = file->mapping.start;
	return 0;
}

static int file_create(struct log_file *file, uint64_t bytes, const char *name)
{
	int ret;

	file->fd = memfd_create("silt-dirty-log", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (file->fd < 0)
		return silt_err_sys(errno, "source %s: memfd_create for a dirty log", name);
	ret = file_fill(file, bytes, name);
	if (ret)
		close(file->fd);
	return ret;
}

static void file_destroy(struct log_file *file)
{
	silt_mapping_destroy(&file->mapping);
	close(file->fd);
}

/* ---- Harvest --------------------------------------------------------------------------------- */

/* Pages [@page, @end) of the slot in a word that others share: theirs stay. */
static int take_shared_word(struct log_source *log, struct sync_slot *slot, uint64_t page,
			    uint64_t end)
{
	uint64_t *word = &log->file.words[page / 64], start = page / 64 * 64 << LOG_PAGE_SHIFT;
	uint64_t mask = UINT64_MAX >> (64 - (end - page)) << page % 64, bits;

	if (SILT_FAULT(sync_log_edge_whole))
		mask = UINT64_MAX;
	if (!silt_access_load64(word, &bits))
		return -EFAULT;
	if (!(bits & mask))
		return 0;
	bits = __atomic_fetch_and(word, ~mask, __ATOMIC_SEQ_CST) & mask;
	sync_deliver(&log->source, slot, &bits, LOG_PAGE_SHIFT, slot->is.gpa - start,
		     (page << LOG_PAGE_SHIFT) - slot->is.gpa, (end - page) << LOG_PAGE_SHIFT);
	return 0;
}

static int take_words(struct log_source *log, struct sync_slot *slot, uint64_t first, uint64_t end)
{
	const struct silt_bitmap_kernels *k = silt_bitmap_kernels();
	uint64_t scratch[SYNC_WORDS_CHUNK], n, taken, start;

	for (; first < end; first += n) {
		n = end - first < SYNC_WORDS_CHUNK ? end - first : SYNC_WORDS_CHUNK;
		taken = k->xchg_take(scratch, &log->file.words[first], n);
		if (taken == SILT_BITMAP_FAULTED)
			return -EFAULT;
		if (!taken)
			continue;
		start = first * 64 << LOG_PAGE_SHIFT;
		sync_deliver(&log->source, slot, scratch, LOG_PAGE_SHIFT, slot->is.gpa - start,
			     start - slot->is.gpa, n * 64 << LOG_PAGE_SHIFT);
	}
	return 0;
}

/* Words of the log that are words of the one bitmap there is: no copy between. */
struct direct {
	uint64_t *dst;
	uint64_t *shared;
	uint64_t n;
	uint64_t fresh; /* atomic, as is the next */
	bool faulted;
};

static void direct_part(void *opaque, uint64_t i)
{
	struct direct *d = opaque;
	uint64_t first = i * PART_WORDS, n = d->n - first < PART_WORDS ? d->n - first : PART_WORDS;
	uint64_t fresh = silt_bitmap_kernels()->xchg_merge(&d->dst[first], &d->shared[first], n);

	if (fresh == SILT_BITMAP_FAULTED)
		__atomic_store_n(&d->faulted, true, __ATOMIC_RELAXED);
	else
		__atomic_fetch_add(&d->fresh, fresh, __ATOMIC_RELAXED);
}

static int merge_words(struct log_source *log, struct sync_slot *slot, struct direct *d)
{
	pthread_mutex_lock(&slot->block->lock);
	sync_pool_run(log->source.sync->pool, direct_part, d,
		      d->n / PART_WORDS + (d->n % PART_WORDS != 0));
	pthread_mutex_unlock(&slot->block->lock);
	sync_count(&log->source, slot->block, d->fresh);
	return d->faulted ? -EFAULT : 0;
}

/* The bitmap of the only consumer, if what is counted is what is new to it. */
static uint64_t *only_bitmap(const struct silt_sync *s, const struct sync_block *block)
{
	uint64_t *only = NULL;
	int i;

	for (i = 0; i < SILT_SYNC_MAX_CONSUMERS; i++) {
		if (!block->bits[i])
			continue;
		if (only || (i != s->counting && s->counting != SYNC_NOT_COUNTING))
			return NULL;
		only = block->bits[i];
	}
	return only;
}

/* Whole words [@first, @end) of the log, all of them the slot's. */
static int harvest_words(struct log_source *log, struct sync_slot *slot, uint64_t first,
			 uint64_t end)
{
	const struct silt_sync *s = log->source.sync;
	uint64_t bit =
		(slot->is.offset + (first * 64 << LOG_PAGE_SHIFT) - slot->is.gpa) >> LOG_PAGE_SHIFT;
	uint64_t *dst = only_bitmap(s, slot->block);
	struct direct d = {.shared = &log->file.words[first], .n = end - first};

	if (!dst || s->opt.page_shift != LOG_PAGE_SHIFT || bit % 64)
		return take_words(log, slot, first, end);
	d.dst = &dst[bit / 64];
	return merge_words(log, slot, &d);
}

static int harvest_slot(struct log_source *log, struct sync_slot *slot)
{
	uint64_t page = slot->is.gpa >> LOG_PAGE_SHIFT;
	uint64_t end = page + (slot->is.bytes >> LOG_PAGE_SHIFT);
	uint64_t edge = page % 64 || end - page < 64 ? (page / 64 + 1) * 64 : page;
	int ret = 0;

	if (edge > end)
		edge = end;
	if (page < edge)
		ret = take_shared_word(log, slot, page, edge);
	page = edge;
	if (!ret && end - page >= 64)
		ret = harvest_words(log, slot, page / 64, end / 64);
	page += (end - page) / 64 * 64;
	if (!ret && page < end)
		ret = take_shared_word(log, slot, page, end);
	return ret;
}

static int read_slot(struct log_source *log, struct sync_slot *slot)
{
	if (!log->lost && !harvest_slot(log, slot))
		return 0;
	sync_deliver_all(&log->source, slot, 0, slot->is.bytes);
	return silt_err(EFAULT,
			"source %s: the dirty log's memory faulted, where it is for slot %u of "
			"address space %u",
			log->source.name, slot->is.number, slot->is.address_space);
}

static int log_read(struct sync_source *src)
{
	struct log_source *log = log_of(src);
	struct silt_failure failure = {0};
	unsigned int i;

	for (i = 0; i < log->slots.n; i++)
		silt_failure_note(&failure, read_slot(log, log->slots.entries[i].slot));
	log->lost = false;
	/* Law 2: what is read of a page from here on is as new as its mark. */
	silt_fence();
	return silt_failure_tell(&failure);
}

/* ---- Replacing it ---------------------------------------------------------------------------- */

static bool set_marks(struct log_file *to, const uint64_t *bits, uint64_t first, uint64_t n)
{
	uint64_t i;

	for (i = 0; i < n && first + i < to->bytes / 8; i++) {
		if (bits[i] && !silt_access_or64(&to->words[first + i], bits[i]))
			return false;
	}
	return true;
}

static void move_words(struct log_source *log, struct log_file *to, struct log_file *from,
		       uint64_t first, uint64_t end)
{
	const struct silt_bitmap_kernels *k = silt_bitmap_kernels();
	uint64_t scratch[SYNC_WORDS_CHUNK], n, taken;

	for (; first < end; first += n) {
		n = end - first < SYNC_WORDS_CHUNK ? end - first : SYNC_WORDS_CHUNK;
		taken = k->xchg_take(scratch, &from->words[first], n);
		if (taken == SILT_BITMAP_FAULTED || (taken && !set_marks(to, scratch, first, n)))
			log->lost = true;
	}
}

/*
 * No device writes to @from any more. What does not fit into @to lies in no slot. Memory of a log
 * that nobody touched is not looked at: it would come into being, and a slot far up makes it long.
 */
static void move_marks(struct log_source *log, struct log_file *to, struct log_file *from)
{
	off_t start = 0, end;

	while ((start = lseek(from->fd, start, SEEK_DATA)) >= 0) {
		end = lseek(from->fd, start, SEEK_HOLE);
		if (end < 0)
			break;
		move_words(log, to, from, (uint64_t)start / 8, (uint64_t)end / 8);
		start = end;
	}
	if (errno != ENXIO)
		log->lost = true;
}

static int hand_out(struct log_source *log, const struct log_file *file)
{
	struct silt_sync_log_file out = {
		.fd = file->fd, .bytes = file->bytes, .memory = file->words};
	int ret = log->replace(log->opaque, &out);

	if (!ret)
		return 0;
	return silt_err_sys(silt_callback_errno(ret),
			    "source %s: its owner refused a dirty log of %" PRIu64 " bytes (%d)",
			    log->source.name, file->bytes, ret);
}

/*
 * Where some device would not go over to the new log, others may have marked it before they went
 * back: then it is the new one whose marks are moved.
 */
static int replace(struct log_source *log, uint64_t bytes)
{
	struct log_file fresh, old = log->file;
	int ret = file_create(&fresh, bytes, log->source.name);

	if (ret)
		return ret;
	ret = hand_out(log, &fresh);
	if (ret) {
		move_marks(log, &log->file, &fresh);
		file_destroy(&fresh);
		return ret;
	}
	log->file = fresh;
	if (!SILT_FAULT(sync_log_old_dropped))
		move_marks(log, &log->file, &old);
	file_destroy(&old);
	return 0;
}

/* ---- The source ------------------------------------------------------------------------------ */

static uint64_t last_byte(const struct sync_slot *slot)
{
	return slot->is.gpa + slot->is.bytes - 1;
}

static int log_slot_added(struct sync_source *src, struct sync_slot *slot)
{
	struct log_source *log = log_of(src);
	uint64_t bytes = bytes_for(last_byte(slot));
	int ret;

	if (slot->is.address_space != log->address_space)
		return 0;
	ret = sync_slot_list_add(&log->slots, slot->is.gpa, slot);
	if (ret || bytes <= log->file.bytes)
		return ret;
	ret = replace(log, bytes);
	if (ret)
		sync_slot_list_remove(&log->slots, slot);
	return ret;
}

static void log_slot_removed(struct sync_source *src, struct sync_slot *slot)
{
	sync_slot_list_remove(&log_of(src)->slots, slot);
}

static void log_destroy(struct sync_source *src)
{
	struct log_source *log = log_of(src);

	log_read(src);
	file_destroy(&log->file);
	sync_slot_list_free(&log->slots);
	free(src->name);
	free(log);
}

static const struct sync_source_ops log_ops = {
	.kind = "log",
	.step = offsetof(struct silt_sync_stats, log_ns),
	.read = log_read,
	.slot_added = log_slot_added,
	.slot_removed = log_slot_removed,
	.destroy = log_destroy,
};

/* Where the address space's slots end; 0 without any. */
static uint64_t last_of(const struct silt_sync *s, uint32_t address_space)
{
	uint64_t last = 0;
	int i;

	for (i = 0; i < s->nslots; i++) {
		if (s->slots[i] && s->slots[i]->is.address_space == address_space &&
		    last_byte(s->slots[i]) > last)
			last = last_byte(s->slots[i]);
	}
	return last;
}

/* The slots' addition is no news to the log: it was made to fit them. */
static int attach(struct silt_sync *s, struct log_source *log, const char *name)
{
	int id = sync_source_attach(s, &log->source, name, &log_ops), ret;

	if (id < 0)
		return id;
	ret = hand_out(log, &log->file);
	if (!ret)
		return id;
	s->sources[id] = NULL;
	return ret;
}

static int add(struct silt_sync *s, const struct silt_sync_log *opt)
{
	struct log_source *log = calloc(1, sizeof(*log));
	int ret;

	if (!log)
		return silt_err(ENOMEM, "no memory for a source");
	log->address_space = opt->address_space;
	log->replace = opt->replace;
	log->opaque = opt->opaque;
	ret = file_create(&log->file, bytes_for(last_of(s, opt->address_space)),
			  opt->name ? opt->name : log_ops.kind);
	if (ret) {
		free(log);
		return ret;
	}
	ret = attach(s, log, opt->name);
	if (ret < 0)
		log_destroy(&log->source);
	return ret;
}

int silt_sync_add_log(struct silt_sync *s, const struct silt_sync_log *options)
{
	struct silt_sync_log opt;
	int ret = silt_options_get(&opt, sizeof(opt), options, "a dirty log");

	if (ret)
		return ret;
	if (!opt.replace)
		return silt_err(EINVAL, "a dirty log has no function that hands it out");
	pthread_rwlock_wrlock(&s->topology);
	ret = add(s, &opt);
	pthread_rwlock_unlock(&s->topology);
	return ret;
}

int silt_sync_log_replace(struct silt_sync *s, int source)
{
	struct log_source *log;
	int ret = -ENOENT;

	pthread_rwlock_wrlock(&s->topology);
	log = log_of(sync_source_find(s, source, &log_ops));
	if (log)
		ret = replace(log, bytes_for(last_of(s, log->address_space)));
	pthread_rwlock_unlock(&s->topology);
	return ret;
}
