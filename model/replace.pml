/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Law 4 for a log that comes, changes or comes late while two queues run: logging is switched on,
 * and then a log is set in place of the first one, or, where there was none, of the marks that were
 * kept. The control thread does what silt_commit() does: it parks the queues, flushes what they
 * have pending into the log that they had, merges kept marks, hands out the new log, lets the
 * queues go on and answers. The monitor copies all pages once logging is on, and harvests: the old
 * log for the last time after the answer, the new one from there on. When all is quiet:
 *
 * - lost: each page's copy is the page, or its bit is set in the log that is still read.
 *
 * And stray, at any time: nothing marks the old log once its replacement was answered.
 *
 * Queue 0 stores to its page itself; of queue 1 a kernel does, which goes on while the queue is
 * parked, and stores its completion behind the data.
 */
#ifndef ROUNDS
#define ROUNDS 2
#endif

#define PAGES	  2
#define ADDRESSES 6
#define BUFFERS	  2
#define DEPTH	  3
#include "memory.pml"

#define OLD	   0
#define NEW	   1
#define HELD	   2 /* the log of a monitor that has given none */
#define PAGE(q)	   (3 + (q))
#define COMPLETION 5
#define NONE	   255

#define BIT(q) (1 << (q))

/* What the monitor asks for, and the control thread has answered. */
#define ON	1
#define REPLACE 2
byte asked, answered;
bool late; /* no log comes before logging is on */

byte copy[PAGES];
byte log_of[PAGES] = NONE;
byte stored[PAGES]; /* rounds */
bool pending[PAGES];
bool park[PAGES], parked[PAGES];
byte submitted;
bool harvested;
bool lost, stray;

/* ---- The queues ------------------------------------------------------------------------------ */

inline mark(q)
{
	if
	:: mem[log_of[q]] & BIT(q)
	:: else ->
		atomic {
			stray = log_of[q] == OLD && answered == REPLACE;
			assert(!stray);
			mem[log_of[q]] = mem[log_of[q]] | BIT(q)
		}
	fi;
	pending[q] = false
}

/* Stored to: now or later that will be marked, if anything is. */
inline wrote(q)
{
	atomic {
		stored[q]++;
		pending[q] = log_of[q] != NONE
	}
}

/* Taking and giving back a lock, the queue waits until its stores are seen. */
inline stay_parked(p, q)
{
	atomic {
		drained(p);
		parked[q] = true
	}
	atomic {
		!park[q];
		parked[q] = false
	}
}

active proctype queue()
{
end:
	do
	:: park[0] -> stay_parked(0, 0)
	:: stored[0] < ROUNDS ->
		store(0, PAGE(0), stored[0] + 1);
		wrote(0)
	:: pending[0] ->
#ifndef NO_FENCE
		fence(0);
#endif
		mark(0)
	od
}

/* It stores nothing that others see: the fence in its flush has nothing to wait for. */
active proctype kernel_queue()
{
end:
	do
	:: atomic {
		park[1] ->
			parked[1] = true
	   }
	   atomic {
		!park[1];
		parked[1] = false
	   }
	:: submitted == stored[1] && submitted < ROUNDS -> submitted++
	:: mem[COMPLETION] > stored[1] -> wrote(1)
	:: pending[1] -> mark(1)
	od
}

active proctype kernel()
{
	byte n;

	do
	:: n < ROUNDS ->
		submitted > n;
		n++;
		store(1, PAGE(1), n);
		store(1, COMPLETION, n)
	:: else -> break
	od
}

/* ---- The control thread ---------------------------------------------------------------------- */

inline quiesce()
{
	park[0] = true;
	parked[0];
	park[1] = true;
	parked[1]
}

inline flush_parked(q)
{
	if
#ifdef DROP_PENDING
	:: pending[q] -> pending[q] = false
#else
	:: pending[q] -> mark(q)
#endif
	:: else
	fi
}

inline carry()
{
	flush_parked(0);
	flush_parked(1);
	if
#ifndef HELD_DROPPED
	:: log_of[0] == HELD -> mem[NEW] = mem[NEW] | mem[HELD]
#endif
	:: else
	fi
}

inline wake(log)
{
	log_of[0] = log;
	park[0] = false;
#ifdef KEEP_LOG
	if
	:: log_of[1] == NONE -> log_of[1] = log
	:: else
	fi;
#else
	log_of[1] = log;
#endif
	park[1] = false
}

inline commit(log)
{
	quiesce();
	carry();
	wake(log)
}

active proctype control()
{
	byte log;

	do
	:: answered < REPLACE ->
		asked > answered;
		log = (asked == REPLACE -> NEW : (late -> HELD : OLD));
#ifdef ANSWERED_FIRST
		answered = (asked == ANSWERED_FIRST -> asked : answered);
#endif
		commit(log);
		answered = asked
	:: else -> break
	od
}

/* ---- The monitor ----------------------------------------------------------------------------- */

inline harvest(log)
{
	if
	:: mem[log] -> exchange(log, 0, taken)
	:: else
	fi;
	if
	:: taken & BIT(0) -> copy[0] = mem[PAGE(0)]
	:: else
	fi;
	if
	:: taken & BIT(1) -> copy[1] = mem[PAGE(1)]
	:: else
	fi;
	taken = 0
}

inline harvest_old()
{
	if
	:: !late -> harvest(OLD)
	:: else
	fi
}

active proctype monitor()
{
	byte taken;

	if
	:: late = true
	:: mem[OLD] = BIT(0) | BIT(1)
	:: skip
	fi;
	asked = ON;
	answered >= ON;
	copy[0] = mem[PAGE(0)];
	copy[1] = mem[PAGE(1)];
	harvest_old();
	asked = REPLACE;
	answered == REPLACE;
#ifndef NO_LAST_HARVEST
	harvest_old();
#endif
	harvest(NEW);
	harvested = true
}

#define STALE(q) (copy[q] != mem[PAGE(q)] && !(mem[NEW] & BIT(q)))

init
{
	harvested && stored[0] == ROUNDS && stored[1] == ROUNDS && !pending[0] && !pending[1] &&
		drained(0) && drained(1);
	lost = STALE(0) || STALE(1);
#ifndef STRAYS_ONLY
	assert(!lost)
#endif
}
