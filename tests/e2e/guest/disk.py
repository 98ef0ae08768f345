# SPDX-License-Identifier: BSD-3-Clause
"""The disk's contents, as workload.c knows them: 64-bit words that say where they are and, in the
upper half, which write put them there."""
import array

CHUNK_BYTES = 65536
CHUNK_WORDS = CHUNK_BYTES // 8
READ_CHUNKS = 257
WRITE_CHUNKS = 127


def chunk(generation, index):
    first = (generation << 32) + index * CHUNK_WORDS
    return array.array("Q", range(first, first + CHUNK_WORDS)).tobytes()


def create(path):
    with open(path, "wb") as image:
        for index in range(READ_CHUNKS + WRITE_CHUNKS):
            image.write(chunk(0, index))


def expected(writes):
    """Generation of each chunk after so many writes, of which the n'th went to chunk n modulo
    WRITE_CHUNKS behind those that are only read."""
    generations = [0] * (READ_CHUNKS + WRITE_CHUNKS)
    for n in range(max(1, writes - WRITE_CHUNKS + 1), writes + 1):
        generations[READ_CHUNKS + n % WRITE_CHUNKS] = n
    return generations


def wrong_chunks(path, writes):
    with open(path, "rb") as image:
        return [index for index, generation in enumerate(expected(writes))
                if image.read(CHUNK_BYTES) != chunk(generation, index)]
