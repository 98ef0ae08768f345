#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Each public header compiles by itself, as C and as C++, strict and not.
set -eu

include=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

compile() {
	# The header is included twice: its guard is tried as well.
	"$@" -Wall -Wextra -Werror -I"$include" -O1 -c "$dir/one.$suffix" -o "$dir/one.o"
}

for header in "$include"/silt/*.h; do
	name=$(basename "$header")
	case $name in *_impl.h) continue ;; esac # parts of another header
	for suffix in c cc; do
		printf '#include <silt/%s>\n#include <silt/%s>\nint main(void) { return 0; }\n' \
			"$name" "$name" >"$dir/one.$suffix"
	done
	suffix=c
	compile gcc -std=gnu11
	compile gcc -std=c99
	compile clang -std=c11
	suffix=cc
	compile g++ -std=c++11
	compile clang++ -std=c++11
	echo "$name"
done
