/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Law 5: a guest stores to a page, a sync reads KVM's bits and delivers them to two consumers, and
 * each consumer takes the page and copies it, as lib/sync's source_kvm.c, take.c and clear.c do, in
 * manual mode. One slot shows the page, or two (SLOTS=2). When all is quiet:
 *
 * - lost: each consumer's copy is the page, or the page is dirty for it, or KVM reports it still.
 *
 * A store to an armed page traps: KVM sets the slot's bit and lets further stores pass. A clear
 * takes bits out, arms the pages, and ends when no processor uses an old translation any more,
 * which also empties their store buffers. Between two of these steps anything may happen.
 */
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef ARMED_SLOTS
#define ARMED_SLOTS SLOTS
#endif
#ifndef STORES
#define STORES 2
#endif
#ifndef SYNCS
#define SYNCS 2
#endif
#ifndef TAKES
#define TAKES 2
#endif

#define ADDRESSES 1
#define BUFFERS	  1
#define DEPTH	  STORES
#include "memory.pml"

#define PAGE	  0
#define CONSUMERS 2

/* Of each slot. */
bool reported[SLOTS]; /* KVM's bit */
bool armed[SLOTS];
bool unclean[SLOTS]; /* read from KVM and not cleared */
bool locked[SLOTS];

/* Of the block. */
bool unclean_chunk;
bool clearing; /* the lock */
bool dirty[CONSUMERS];

byte copy[CONSUMERS];
byte working = 2 + CONSUMERS;
bool lost;

inline lock(l)
{
	atomic {
		!l;
		l = true
	}
}

/* ---- The guest and KVM ----------------------------------------------------------------------- */

proctype guest()
{
	byte n, slot;

	do
	:: n < STORES ->
		if
		:: slot = 0
#if SLOTS > 1
		:: slot = 1
#endif
		fi;
		/* The store that trapped is tried again, and may trap again. */
		do
		:: atomic {
			armed[slot] ->
				reported[slot] = true;
				armed[slot] = false
		   }
		:: atomic {
			!armed[slot] ->
				n++;
				store(0, PAGE, n)
		   }
		   break
		od
	:: else -> break
	od;
	slot = 0;
	working--
}

/* KVM arms what it takes a bit of, and nothing else. */
inline clear(slot)
{
	if
	:: reported[slot] ->
		reported[slot] = false;
		armed[slot] = true;
#ifndef NO_SHOOTDOWN
		fence(0)
#endif
	:: else
	fi
}

/* ---- Sync ------------------------------------------------------------------------------------ */

proctype syncer()
{
	byte n, slot;

	do
	:: n < SYNCS ->
		n++;
		slot = 0;
		do
		:: slot < SLOTS ->
			lock(locked[slot]);
			unclean[slot] = reported[slot];
#ifdef UNLOCKED_DELIVERY
			locked[slot] = false;
#endif
			unclean_chunk = true;
			if
			:: unclean[slot] ->
				d_step {
					dirty[0] = true;
					dirty[1] = true
				}
			:: else
			fi;
#ifndef UNLOCKED_DELIVERY
			locked[slot] = false;
#endif
			slot++
		:: else -> break
		od
	:: else -> break
	od;
	slot = 0;
	working--
}

/* ---- Take ------------------------------------------------------------------------------------ */

#ifdef MASK_OF_CONSUMER
#define MASK(slot) true
#else
#define MASK(slot) unclean[slot]
#endif

inline arm()
{
	atomic {
		have = unclean_chunk;
		unclean_chunk = false
	}
	slot = 0;
	do
	:: have && slot < ARMED_SLOTS ->
		lock(locked[slot]);
		if
		:: MASK(slot) ->
			clear(slot);
			unclean[slot] = false
		:: else
		fi;
		locked[slot] = false;
		slot++
	:: else -> break
	od;
	have = false;
	slot = 0
}

inline read_page(c)
{
	copy[c] = mem[PAGE]
}

inline take(c)
{
#ifdef ARMED_FIRST
	arm();
	dirty[c] = false;
#else
	dirty[c] = false;
#ifdef READ_FIRST
	read_page(c);
#endif
	arm();
#endif
	clearing = false;
#ifndef READ_FIRST
	read_page(c)
#endif
}

proctype consumer(byte me)
{
	byte n, slot;
	bool have;

	do
	:: n < TAKES && dirty[me] ->
		n++;
#ifndef UNLOCKED_CLEARS
		lock(clearing);
#endif
		take(me)
	:: break
	od;
	n = 0;
	working--
}

init
{
	byte slot;

	/* A page begins armed, or, as with INITIALLY_SET, reported. */
	do
	:: slot < SLOTS ->
		if
		:: armed[slot] = true
		:: reported[slot] = true
		fi;
		slot++
	:: else -> break
	od;
	atomic {
		run guest();
		run syncer();
		run consumer(0);
		run consumer(1)
	}
	working == 0 && drained(0);
	slot = 0;
	do
	:: slot < SLOTS && !reported[slot] -> slot++
	:: else -> break
	od;
	lost = slot == SLOTS && ((copy[0] != mem[PAGE] && !dirty[0]) ||
				 (copy[1] != mem[PAGE] && !dirty[1]));
	assert(!lost)
}
