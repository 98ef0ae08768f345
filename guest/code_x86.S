/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All that a vCPU ever does. It is copied into guest memory and knows no address but its program's,
 * in rdi. It has no stack and takes no interrupt. A store to a bell, where no memory is, hands over
 * to the host, which comes back with all registers as they were: a program goes on where it was,
 * unless it is a fresh one. (At level 3, KVM without help from the processor does not keep the right
 * to use OUT.)
 *
 *     rdi  struct program		r8   state of the random numbers
 *     r10  writes left			r11  writes left in this burst
 *     r12  pages left in this run	r13  the next page of it
 *     r14  the bells
 *     r15  the next place, if they are taken in order
 */
#include "guest/program.h"

	.section .rodata
	.balign 16
	.globl guest_code_start, guest_code_end
	.hidden guest_code_start, guest_code_end
	.code64
guest_code_start:
	cmpl	$0, PROGRAM_FRESH(%rdi)
	je	next_write
	movl	$0, PROGRAM_FRESH(%rdi)
	mov	PROGRAM_SEED(%rdi), %r8
	mov	PROGRAM_WRITES(%rdi), %r10
	mov	PROGRAM_BURST(%rdi), %r11
	xor	%r12, %r12
	xor	%r15, %r15

next_write:
	cmpl	$0, PROGRAM_STOP(%rdi)
	jne	stopped
	test	%r10, %r10
	jz	ended
	test	%r11, %r11
	jz	idle
	test	%r12, %r12
	jnz	write

	cmpq	$0, PROGRAM_SEQUENTIAL(%rdi)
	je	random_place
	/* rdx = r15, which goes round. */
	mov	%r15, %rdx
	inc	%r15
	cmp	PROGRAM_PLACES(%rdi), %r15
	jb	find_range
	xor	%r15, %r15
	jmp	find_range

	/* xorshift64*; rdx = how far the random number is on its way to 2^64, in places. */
random_place:
	mov	%r8, %rax
	shr	$12, %rax
	xor	%rax, %r8
	mov	%r8, %rax
	shl	$25, %rax
	xor	%rax, %r8
	mov	%r8, %rax
	shr	$27, %rax
	xor	%rax, %r8
	movabs	$0x2545f4914f6cdd1d, %rax
	imul	%r8, %rax
	mulq	PROGRAM_PLACES(%rdi)

	/* Place rdx of all: in which range? */
find_range:
	lea	PROGRAM_RANGES(%rdi), %rsi
1:	mov	8(%rsi), %rax
	cmp	%rax, %rdx
	jb	2f
	sub	%rax, %rdx
	add	$PROGRAM_RANGE_SIZE, %rsi
	jmp	1b
2:	imul	PROGRAM_STRIDE(%rdi), %rdx
	add	(%rsi), %rdx
	mov	%rdx, %r13
	mov	PROGRAM_RUN(%rdi), %r12

	/* A number that was never written before, to 8 bytes somewhere in the page. */
write:
	mov	PROGRAM_COUNTER(%rdi), %rax
	inc	%rax
	imul	$0x3779b97f, %rax, %rcx
	shr	$20, %rcx
	add	%r8, %rcx
	and	$0xff8, %ecx
	mov	%rax, (%r13, %rcx)
	mov	%rax, PROGRAM_COUNTER(%rdi)
	add	$PROGRAM_PAGE, %r13
	dec	%r12
	dec	%r10
	dec	%r11
	jmp	next_write

stopped:
	mov	%eax, PROGRAM_BELL_STOPPED(%r14)
	jmp	guest_code_start
ended:
	mov	%eax, PROGRAM_BELL_ENDED(%r14)
	jmp	guest_code_start
idle:
	mov	PROGRAM_BURST(%rdi), %r11
	mov	%eax, PROGRAM_BELL_IDLE(%r14)
	jmp	guest_code_start
guest_code_end:

	.section .note.GNU-stack, "", %progbits
