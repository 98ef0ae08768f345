/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory as x86-64 processors share it (x86-TSO). Spin by itself lets each store be seen by all at
 * once; here each process has a buffer, first in, first out, that its stores wait in. A load takes
 * the newest store to the address from the process's own buffer, or else from memory. A fence and
 * a locked instruction wait until the buffer is empty; a locked instruction then acts on memory in
 * one step. The buffers empty themselves, one store at a time, at any moment.
 *
 * The including model defines ADDRESSES, BUFFERS, and DEPTH: so large that no buffer is ever full,
 * which is asserted. A process without stores that others see needs no buffer: its loads are
 * direct, and its locked instructions are steps.
 *
 * Source: Sewell, Sarkar, Owens, Zappa Nardelli and Myreen, "x86-TSO: A Rigorous and Usable
 * Programmer's Model for x86 Multiprocessors", CACM 53(7), 2010.
 */
byte mem[ADDRESSES];

typedef buffer {
	byte n;
	byte addr[DEPTH];
	byte val[DEPTH]
};
buffer buf[BUFFERS];

hidden byte at_; /* used within single steps only */

#define drained(p) (buf[p].n == 0)

inline store(p, a, v)
{
	d_step {
		assert(buf[p].n < DEPTH);
		buf[p].addr[buf[p].n] = a;
		buf[p].val[buf[p].n] = v;
		buf[p].n++
	}
}

inline load(p, a, out)
{
	d_step {
		out = mem[a];
		at_ = 0;
		do
		:: at_ < buf[p].n ->
			if
			:: buf[p].addr[at_] == a -> out = buf[p].val[at_]
			:: else
			fi;
			at_++
		:: else -> break
		od
	}
}

inline fence(p)
{
	drained(p)
}

inline locked_or(p, a, mask)
{
	atomic {
		drained(p);
		mem[a] = mem[a] | (mask)
	}
}

/* By a process without a buffer. */
inline exchange(a, v, old)
{
	d_step {
		old = mem[a];
		mem[a] = v
	}
}

/* What is free in a buffer is zero, so that states which mean the same are the same. */
inline drain(p)
{
	d_step {
		mem[buf[p].addr[0]] = buf[p].val[0];
		buf[p].n--;
		at_ = 0;
		do
		:: at_ < buf[p].n ->
			buf[p].addr[at_] = buf[p].addr[at_ + 1];
			buf[p].val[at_] = buf[p].val[at_ + 1];
			at_++
		:: else -> break
		od;
		buf[p].addr[buf[p].n] = 0;
		buf[p].val[buf[p].n] = 0
	}
}

active proctype buffers()
{
end:
	do
	:: !drained(0) -> drain(0)
#if BUFFERS > 1
	:: !drained(1) -> drain(1)
#endif
#if BUFFERS > 2
	:: !drained(2) -> drain(2)
#endif
	od
}
