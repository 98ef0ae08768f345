/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Laws 1 to 3: two writers store to their pages and then mark them, as silt_log_flush() does,
 * while a harvester exchanges the words of the log and then copies what they name, as
 * silt_log_harvest() and its caller do. When all is quiet each page's copy is the page, or its bit
 * is set.
 *
 * A burst is stores to two pages, one fence, a look at two words, and, if bits are missing, another
 * look at each word and an OR. The writers share the first word, where each has a page of its own,
 * and the second, where they store to one page.
 */
#ifndef BURSTS
#define BURSTS 2
#endif
#ifndef HARVESTS
#define HARVESTS 2
#endif

#define PAGES	  3
#define ADDRESSES (2 + PAGES)
#define BUFFERS	  2
#define DEPTH	  4
#include "memory.pml"

#define WORD(i) (i)
#define PAGE(i) (2 + (i))
#define SHARED	2 /* the page that both store to */

byte copy[PAGES];
byte working = 3;
bool lost;

inline mark(p, word, mask)
{
#ifdef PLAIN_OR
	load(p, WORD(word), have);
	store(p, WORD(word), have | (mask));
#else
#ifndef ALWAYS_OR
	load(p, WORD(word), have);
#endif
	if
	:: (mask) & ~have -> locked_or(p, WORD(word), mask)
	:: else
	fi
#endif
}

inline store_pages(p)
{
	store(p, PAGE(p), value);
	store(p, PAGE(SHARED), value)
}

inline set_missing(p)
{
	mark(p, 0, 1 << p);
	mark(p, 1, 1)
}

inline mark_pages(p)
{
#ifdef ALWAYS_OR
	set_missing(p);
#else
#ifndef NO_FENCE
	fence(p);
#endif
	load(p, WORD(0), have);
	missing = (1 << p) & ~have;
	load(p, WORD(1), have);
	missing = missing | (1 & ~have);
	if
	:: missing -> set_missing(p)
	:: else
	fi
#endif
}

proctype writer(byte me)
{
	byte n, value, have, missing;

	do
	:: n < BURSTS ->
		n++;
		value = 1 + me * BURSTS + n;
#ifdef MARK_FIRST
		mark_pages(me);
		store_pages(me);
		fence(me);
#else
		store_pages(me);
		mark_pages(me);
#endif
		have = 0;
		missing = 0
	:: else -> break
	od;
	working--
}

inline take(word, taken)
{
	taken = mem[WORD(word)];
	if
#ifdef PLAIN_CLEAR
	:: taken -> mem[WORD(word)] = 0
#else
	:: taken -> exchange(WORD(word), 0, taken)
#endif
	:: else
	fi
}

/* Pages in any order would say no more: each is read once, and independently of the others. */
inline copy_pages()
{
	if
	:: first & 1 -> copy[0] = mem[PAGE(0)]
	:: else
	fi;
	if
	:: first & 2 -> copy[1] = mem[PAGE(1)]
	:: else
	fi;
	if
	:: second & 1 -> copy[SHARED] = mem[PAGE(SHARED)]
	:: else
	fi
}

/*
 * Its copies are its own, so it needs no buffer: then the fence behind its exchanges has nothing
 * to wait for. What it would order on x86-64, the locked exchange orders already.
 */
proctype harvester()
{
	byte n, first, second;

	do
	:: n < HARVESTS ->
		n++;
#ifdef COPY_FIRST
		first = mem[WORD(0)];
		second = mem[WORD(1)];
		copy_pages();
		take(0, first);
		take(1, second);
#else
		take(0, first);
		take(1, second);
		copy_pages();
#endif
		first = 0;
		second = 0
	:: else -> break
	od;
	working--
}

init
{
	/* A test finds bits that are set from the start, or not. */
	if
	:: mem[WORD(0)] = 3; mem[WORD(1)] = 1
	:: skip
	fi;
	atomic {
		run writer(0);
		run writer(1);
		run harvester()
	}
	working == 0 && drained(0) && drained(1);
	lost = (copy[0] != mem[PAGE(0)] && !(mem[WORD(0)] & 1)) ||
	       (copy[1] != mem[PAGE(1)] && !(mem[WORD(0)] & 2)) ||
	       (copy[SHARED] != mem[PAGE(SHARED)] && !(mem[WORD(1)] & 1));
	assert(!lost)
}
