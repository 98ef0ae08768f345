/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_ACCESS_H
#define SILT_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <silt/visibility.h>

SILT_BEGIN_DECLS

/*
 * Fault-safe access to memory that another program may truncate.
 *
 * Each access below is one small asm whose address is listed in an exception table. If it raises
 * SIGBUS or SIGSEGV, the handler resumes it at a recovery label and the function returns false. An
 * access that does not fault costs what the bare instruction costs. Without a handler a fault kills
 * the process, as it always did.
 *
 * The table is a section of the program or library that the inline functions were compiled into.
 * silt_access_install() and silt_access_register() are inline so that they name the table of the
 * module that calls them: call one of them once in each module that uses this header or log.h. Such
 * a module must not be unloaded: handlers would go on reading its table.
 */

/* One line of an exception table; both are relative to their own address. */
struct silt_access_entry {
	int32_t insn;  /* the instruction that may fault */
	int32_t fixup; /* where it goes on if it does */
};

extern const struct silt_access_entry __start_silt_access_table[]
	__attribute__((weak, visibility("hidden")));
extern const struct silt_access_entry __stop_silt_access_table[]
	__attribute__((weak, visibility("hidden")));

/** silt_access_add_table() - what silt_access_register() calls; not for direct use. */
SILT_API int silt_access_add_table(const struct silt_access_entry *start,
				   const struct silt_access_entry *stop);

/** silt_access_take_signals() - what silt_access_install() calls; not for direct use. */
SILT_API int silt_access_take_signals(void);

/**
 * silt_access_register() - make the calling module's accesses recoverable
 *
 * For a host that owns SIGBUS and SIGSEGV: call this once in each module, and
 * silt_access_handle() from the host's own handlers.
 *
 * Return: 0; -ENOSPC if too many modules are registered (the bound is 64).
 *
 * Thread: any. Owns: nothing. Blocks: never.
 */
static inline int silt_access_register(void)
{
	return silt_access_add_table(__start_silt_access_table, __stop_silt_access_table);
}

/**
 * silt_access_install() - silt_access_register(), and take over SIGBUS and SIGSEGV
 *
 * Opt-in: the library never does it by itself. Signals that are not ours go on to the handlers that
 * were installed before, or to the default action. Calling it again is harmless.
 *
 * Return: 0, -ENOSPC as above, or -errno of sigaction().
 *
 * Thread: any, for the whole process. Owns: the two signals' dispositions. Blocks: never.
 */
static inline int silt_access_install(void)
{
	int ret = silt_access_register();

	return ret < 0 ? ret : silt_access_take_signals();
}

/**
 * silt_access_handle() - recover one fault; the function for hosts that own the signals
 * @sig:     SIGBUS or SIGSEGV
 * @info:    as the handler got it (a siginfo_t, which strict ISO C does not know)
 * @context: as the handler got it (a ucontext_t)
 *
 * Accepts only a fault raised by the kernel, at a PC of a registered table, at an address inside a
 * range that silt has mapped (a dirty log or a guest memory region).
 *
 * Return: true if the fault was recovered and the handler should return; false if it is not ours.
 *
 * Thread: any, async-signal-safe. Owns: nothing. Blocks: never.
 */
SILT_API bool silt_access_handle(int sig, const void *info, void *context);

/**
 * silt_access_add_range() - let faults inside a mapping of the caller's be recovered
 * @addr: start of the mapping
 * @len:  length in bytes
 *
 * Logs and guest memory that silt maps are added by silt itself.
 *
 * Return: 0, -EINVAL for an empty or wrapping range, -ENOMEM.
 *
 * Thread: any. Owns: nothing; take it back with silt_access_del_range() before unmapping.
 * Blocks: on a mutex held for a short list operation.
 */
SILT_API int silt_access_add_range(const void *addr, size_t len);

/**
 * silt_access_del_range() - undo one silt_access_add_range() with the same arguments
 *
 * Thread, Owns, Blocks: as silt_access_add_range().
 */
SILT_API void silt_access_del_range(const void *addr, size_t len);

/*
 * The accesses. All return true, or false if the access faulted; then memory and *@old or *@val are
 * unchanged. Addresses are naturally aligned. Orders, in C11 terms: or and xchg are sequentially
 * consistent on x86-64 and acquire-release on arm64 (lib/log adds fences where it needs more);
 * load is acquire; store is release.
 *
 * Thread: any. Owns: nothing. Blocks: never.
 */
static inline bool silt_access_or8(uint8_t *p, uint8_t mask);
static inline bool silt_access_or64(uint64_t *p, uint64_t mask);
static inline bool silt_access_xchg64(uint64_t *p, uint64_t val, uint64_t *old);
static inline bool silt_access_load8(const uint8_t *p, uint8_t *val);
static inline bool silt_access_load16(const uint16_t *p, uint16_t *val);
static inline bool silt_access_load32(const uint32_t *p, uint32_t *val);
static inline bool silt_access_load64(const uint64_t *p, uint64_t *val);
/** silt_access_look64() - the same as silt_access_load64(), but reads 0 where it faults */
static inline uint64_t silt_access_look64(const uint64_t *p);
static inline bool silt_access_store8(uint8_t *p, uint8_t val);
static inline bool silt_access_store16(uint16_t *p, uint16_t val);
static inline bool silt_access_store32(uint32_t *p, uint32_t val);
static inline bool silt_access_store64(uint64_t *p, uint64_t val);

/**
 * silt_access_copy() - copy bytes, either side of which may fault
 * @dst: destination, any alignment
 * @src: source, any alignment, not overlapping
 * @len: bytes
 *
 * No order between the bytes. After a fault any prefix may have been copied.
 *
 * Return: true, or false if it faulted. Thread, Owns, Blocks: as the accesses above.
 */
SILT_API bool silt_access_copy(void *dst, const void *src, size_t len);

/** silt_access_fill() - memset() under the same rules as silt_access_copy(). */
SILT_API bool silt_access_fill(void *dst, uint8_t byte, size_t len);

/**
 * silt_fence() - one full fence, stores before it are visible before loads after it
 *
 * A locked instruction on x86-64 (cheaper than mfence), dmb ish on arm64.
 *
 * Thread: any. Owns: nothing. Blocks: never.
 */
static inline void silt_fence(void);

SILT_END_DECLS

#include <silt/access_impl.h>

#endif
