/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Law 1: a device serves two requests and publishes them one by one or both at once, as
 * silt_virtq_publish() does, and may be killed between any two of its steps. Its successor takes
 * over from the record of what is in flight, as silt_virtq_set_inflight() does, and with KILLS=2
 * may be killed meanwhile; with KILLS=0 nobody is. A harvester runs beside them, unless HARVESTS=0.
 * With PACKED, which goes with KILLS=0, the ring is packed: its used descriptors are the entries, the
 * first of a batch comes last, and how far they are stored is the index. When all is quiet:
 *
 * - lost: each page's copy is the page, or its bit is set; the ring's page is the two used entries
 *   and the used index, which are stored and copied one after the other;
 * - unfinished: both requests were used, once each, and none is in flight;
 * - uncalled: the guest was called after the last change of the index.
 *
 * And torn, at any time: a driver that sees the index sees the entries before it and their data.
 *
 * What a dying process had stored reaches memory; the marks that it kept pending die with it.
 */
#ifndef HARVESTS
#define HARVESTS 2
#endif
#ifndef KILLS
#define KILLS 1
#endif

#define REQUESTS  2
#define ADDRESSES 12
#define BUFFERS	  1
#define DEPTH	  5
#include "memory.pml"

#define LOG	 0
#define DATA(h)	 (1 + (h))
#define ENTRY(i) (3 + (i))
#define INDEX	 5
/*
 * The record of what is in flight. Only a successor reads it, once all stores have reached memory,
 * so its stores need no buffer.
 */
#define FLYING(h) (6 + (h))
#define NEXT(h)	  (8 + (h))
#define LAST	  10 /* head of the last batch's list */
#define SETTLED	  11 /* used index up to which the record is settled */

/* Bits of the log. */
#define DATA_BIT(h) (1 << (h))
#define RING_BIT    4

/* A used entry names a head, not 0, and whether the device says that it wrote data. */
#define USED(h)	   ((h) + 1)
#define FAILED	   4
#define HEAD_OF(e) (((e) & 3) - 1)

/* Requests that the driver sees as used. */
#ifdef PACKED
#define SEEN (mem[ENTRY(0)] -> 1 + (mem[ENTRY(1)] != 0) : 0)
#else
#define SEEN mem[INDEX]
#endif

byte place; /* that is watched: what holds for any holds for all */
byte place_bit;
byte copy;
byte called;
byte killed; /* devices that were */
bool taking_over;
byte devices = 1; /* that run or will */
bool harvested;
bool lost, torn, unfinished, uncalled;

/*
 * A step is one access to what others see, and what the process does to its own variables on the
 * way. A fence waits, so it is one step with the access behind it.
 */

/* ---- The log writer -------------------------------------------------------------------------- */

inline flush()
{
	atomic {
		if
		:: pending ->
#ifndef NO_FENCE
			fence(0);
#endif
			load(0, LOG, have)
		:: else
		fi
	}
	atomic {
		if
		:: pending & ~have -> locked_or(0, LOG, pending)
		:: else
		fi;
		pending = 0;
		have = 0
	}
}

/* ---- The record of what is in flight --------------------------------------------------------- */

inline list_batch()
{
	i = 0;
	do
	:: i < nstaged -> mem[NEXT(staged[i])] = mem[LAST];
		d_step {
			mem[LAST] = staged[i];
			i++
		}
	:: else -> break
	od
}

inline clear_batch()
{
	i = 0;
	do
	:: atomic {
		i < nstaged ->
			mem[FLYING(staged[i])] = 0;
			i++
	   }
	:: else -> break
	od
}

#if KILLS
inline settle_list()
{
	ahead = mem[INDEX] - mem[SETTLED];
	head = mem[LAST];
	do
	:: atomic {
		ahead ->
			mem[FLYING(head)] = 0;
			head = mem[NEXT(head)];
			ahead--
	   }
	:: else -> break
	od;
	head = 0
}

inline take_over()
{
	settle_list();
	atomic {
		used = mem[INDEX];
		again[0] = mem[FLYING(0)];
		again[1] = mem[FLYING(1)];
		next = used + again[0] + again[1];
		mem[SETTLED] = used;
#ifndef RING_UNMARKED
		pending = RING_BIT
#endif
	}
	flush();
#ifndef NO_CALL
	call_guest()
#endif
}
#endif

/* ---- The queue ------------------------------------------------------------------------------- */

/* A system call, behind everything that was stored. */
inline call_guest()
{
	atomic {
		fence(0);
		called = SEEN
	}
}

inline stage(h, failed)
{
	staged[nstaged] = h;
	status[nstaged] = failed;
	nstaged++
}

/* The next one that was not popped before: it goes into the record and is served. */
inline serve()
{
	mem[FLYING(next)] = 1;
	atomic {
		store(0, DATA(next), 1);
		pending = pending | DATA_BIT(next);
		stage(next, 0);
		next++
	}
}

#if KILLS
/* One that a process before had popped. It may fail now: what that one stored is dirty yet. */
inline serve_again(h)
{
	atomic {
		if
		:: store(0, DATA(h), 2); stage(h, 0)
		:: stage(h, FAILED)
		fi;
#ifndef RESUBMIT_UNMARKED
		pending = pending | DATA_BIT(h);
#endif
		again[h] = false
	}
}
#endif

inline store_entries()
{
	i = 0;
	do
	:: atomic {
		i < nstaged ->
			store(0, ENTRY(used + i), USED(staged[i]) | status[i]);
			i++
	   }
	:: else -> break
	od
}

#ifdef PACKED
/* Backwards: the driver looks at none before it has seen the first. */
inline store_descriptors()
{
	i = nstaged;
	do
	:: atomic {
		i ->
			i--;
			store(0, ENTRY(used + i), USED(staged[i]) | status[i])
	   }
	:: else -> break
	od
}
#endif

inline store_index()
{
	store(0, INDEX, used + nstaged)
}

inline store_used()
{
#ifdef PACKED
	store_descriptors()
#elif defined(INDEX_FIRST)
	store_index();
	store_entries()
#else
	store_entries();
	store_index()
#endif
}

inline publish()
{
#ifndef PUBLISH_FIRST
	flush();
#endif
#ifdef CLEAR_EARLY
	clear_batch();
#endif
	list_batch();
#ifdef RING_FIRST
	pending = pending | RING_BIT;
	flush();
	store_used();
#else
	store_used();
	pending = pending | RING_BIT;
	flush();
#endif
	clear_batch();
	atomic {
		used = used + nstaged;
		mem[SETTLED] = used;
		nstaged = 0;
		staged[0] = 0;
		staged[1] = 0;
		status[0] = 0;
		status[1] = 0;
		i = 0
	}
	call_guest()
}

proctype device(byte life)
{
	byte used, next, ahead, pending, have, head, i, nstaged;
	byte staged[REQUESTS], status[REQUESTS];
	bool again[REQUESTS];

	{
#if KILLS
		if
		:: life ->
			taking_over = true;
			take_over();
			taking_over = false
		:: else
		fi;
#endif
		do
#if KILLS
		:: again[0] -> serve_again(0)
		:: !again[0] && again[1] -> serve_again(1)
#endif
		:: !again[0] && !again[1] && next < REQUESTS -> serve()
		:: nstaged -> publish()
		:: !again[0] && !again[1] && next == REQUESTS && !nstaged -> break
		od
	} unless {
		killed > life
	}
	devices--
}

#if KILLS
/* It may come as long as the device runs, or not at all. */
active proctype killer()
{
end:
	do
	:: atomic {
		devices == 1 && (!killed || (killed < KILLS && taking_over)) ->
			killed++;
			devices++
	   }
	   drained(0) && devices == 1;
	   taking_over = false;
	   run device(killed)
	od
}
#endif

/* ---- The others ------------------------------------------------------------------------------ */

active proctype harvester()
{
#if HARVESTS
	byte n, taken;

	do
	:: n < HARVESTS ->
		n++;
		if
		:: mem[LOG] -> exchange(LOG, 0, taken)
		:: else
		fi;
		if
		:: taken & place_bit -> copy = mem[place]
		:: else
		fi;
		taken = 0
	:: else -> break
	od;
#endif
	harvested = true
}

#define TORN(i) \
	(SEEN > (i) && \
	 (!mem[ENTRY(i)] || (!(mem[ENTRY(i)] & FAILED) && !mem[DATA(HEAD_OF(mem[ENTRY(i)]))])))

/*
 * It looks at all at once: what it would see later, one after the other, is newer still, and
 * nothing of it goes back to zero.
 */
active proctype driver()
{
end:
	do
	:: atomic {
		torn = TORN(0) || TORN(1);
		assert(!torn)
	   }
	od
}

init
{
	atomic {
		if
		:: place = DATA(0); place_bit = DATA_BIT(0)
#ifndef PACKED
		:: place = INDEX; place_bit = RING_BIT
#endif
		:: place = ENTRY(0); place_bit = RING_BIT
		:: place = ENTRY(1); place_bit = RING_BIT
		:: place = DATA(1); place_bit = DATA_BIT(1)
		fi
	}
	if
	:: mem[LOG] = DATA_BIT(0) | DATA_BIT(1) | RING_BIT
	:: skip
	fi;
	run device(0);
	devices == 0 && harvested && drained(0);
	lost = copy != mem[place] && !(mem[LOG] & place_bit);
	assert(!lost);
	unfinished = SEEN != REQUESTS || mem[FLYING(0)] || mem[FLYING(1)] ||
		     HEAD_OF(mem[ENTRY(0)]) + HEAD_OF(mem[ENTRY(1)]) != 1;
	assert(!unfinished);
	uncalled = called != SEEN;
	assert(!uncalled)
}
