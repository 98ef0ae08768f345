/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Law 4 for a queue that is stopped: GET_VRING_BASE comes at any moment, while a kernel stores the
 * data of requests in flight. The queue takes no more, waits for what is in flight and leaves; then
 * the control thread publishes what is left, flushes all marks and answers, as silt_virtq_stop()
 * and silt_commit() do. The monitor copied all pages before, harvests once at any moment, and for
 * the last time after the answer. When all is quiet:
 *
 * - lost: each page's copy is the page. A bit that is set now comes too late.
 */
#define REQUESTS  2
#define ADDRESSES (3 + REQUESTS)
#define BUFFERS	  2
#define DEPTH	  4
#include "memory.pml"

#define LOG	   0
#define INDEX	   1 /* in the ring's page */
#define COMPLETION 2
#define PAGE(r)	   (3 + (r))

#define RING_BIT 1
#define BIT(r)	 (2 << (r))
#define ALL	 (BIT(REQUESTS) - 1)

byte copy[ADDRESSES];
byte submitted, taken, published, pending;
bool asked, left, answered, harvested;
bool lost;

/* ---- The queue ------------------------------------------------------------------------------- */

/* It touches nothing but through its thread's buffer, whichever thread that is. */
inline flush()
{
	if
	:: pending ->
		fence(0);
		if
		:: pending & ~mem[LOG] -> mem[LOG] = mem[LOG] | pending
		:: else
		fi;
		pending = 0
	:: else
	fi
}

inline publish()
{
	flush();
	store(0, INDEX, taken);
	atomic {
		published = taken;
		pending = RING_BIT
	}
}

#ifdef UNDRAINED
#define IDLE true
#else
#define IDLE (submitted == taken)
#endif

active proctype queue()
{
	do
	:: !asked && submitted < REQUESTS -> submitted++
	:: mem[COMPLETION] > taken ->
		atomic {
			pending = pending | BIT(taken);
			taken++
		}
	:: published < taken -> publish()
	:: pending -> flush()
	:: asked && IDLE -> break
	od;
	fence(0);
	left = true
}

active proctype kernel()
{
	byte n;

end:
	do
	:: submitted > n ->
		n++;
		store(1, PAGE(n - 1), n);
		store(1, COMPLETION, n)
	od
}

/* ---- The control thread ---------------------------------------------------------------------- */

active proctype control()
{
	asked;
	left;
#ifdef ANSWERED_FIRST
	answered = true;
#endif
#ifdef DROP_PENDING
	pending = 0;
#endif
	if
	:: published < taken -> publish()
	:: else
	fi;
	flush();
	fence(0);
	answered = true
}

/* ---- The monitor ----------------------------------------------------------------------------- */

inline copy_page(mask, a)
{
	if
	:: bits & (mask) -> copy[a] = mem[a]
	:: else
	fi
}

inline harvest()
{
	exchange(LOG, 0, bits);
	copy_page(RING_BIT, INDEX);
	copy_page(BIT(0), PAGE(0));
	copy_page(BIT(1), PAGE(1));
	bits = 0
}

active proctype monitor()
{
	byte bits;

	if
	:: mem[LOG] = ALL
	:: skip
	fi;
	harvest();
	asked = true;
#ifdef HARVESTED_FIRST
	harvest();
	answered;
#else
	answered;
	harvest();
#endif
	harvested = true
}

init
{
	harvested && left && drained(0) && drained(1);
	/* What is in flight has come in. */
	mem[COMPLETION] == submitted;
	lost = copy[INDEX] != mem[INDEX] || copy[PAGE(0)] != mem[PAGE(0)] ||
	       copy[PAGE(1)] != mem[PAGE(1)];
	assert(!lost)
}
