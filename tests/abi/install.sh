#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What meson install leaves behind is enough: pkg-config finds it, and programs in C and C++ link and
# run, with the shared library and with the static one.
set -eu

build=$1
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

DESTDIR=$dir/root meson install -C "$build" --no-rebuild --quiet

# Lists of words cannot hold a directory whose name has blanks: all names are relative.
cd "$dir"
pc=$(find root -name silt.pc)
prefix=$(sed -n 's/^prefix=//p' "$pc")
export PKG_CONFIG_LIBDIR="${pc%/silt.pc}"
flags() {
	pkg-config --define-variable=prefix="root$prefix" "$@" silt
}
libdir=$(flags --variable=libdir)

build_and_run() {
	name=$1
	shift
	"$@" -Wall -Wextra -Werror -o "$name"
	said=$(LD_LIBRARY_PATH=$libdir "./$name")
	[ "$said" = "$(flags --modversion)" ] || {
		echo "$name said '$said'" >&2
		exit 1
	}
	echo "$name: $said"
}

# shellcheck disable=SC2046 # lists of words
{
	build_and_run shared-c gcc $(flags --cflags) "$here/program.c" $(flags --libs)
	build_and_run shared-c++ g++ -x c++ $(flags --cflags) "$here/program.c" $(flags --libs)
	build_and_run static-c gcc $(flags --cflags) "$here/program.c" "$libdir/libsilt.a" \
		$(flags --libs-only-other --static)
}
