# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Completion of silt's commands, options and values in bash. Options are those that --help tells, so
# that nothing is said here that the command does not know.

# Options at the beginning of a line of help; an = behind those that take a value.
_silt_options() {
	"$@" --help 2>/dev/null | sed -n 's/^  \(-.*\)/\1  /p' | sed 's/  .*//' |
		grep -oE -- '--[a-z][a-z-]*=?|^-[a-z]'
}

# Words at the beginning of a line of help that are no options.
_silt_commands() {
	"$@" --help 2>/dev/null | sed -nE 's/^  ([a-z]+)  .*/\1/p'
}

# Print what an option's value may be; 1 if it is a file or something else.
_silt_values() {
	local silt=$1 command=$2 option=$3
	case $command$option in
	check--device) echo block net fs vsock auto ;;
	check--ignore) echo data completion bookkeeping ;;
	check--only) "$silt" check --list 2>/dev/null | grep '/.*[^:]$' ;;
	blk--aio) echo io_uring sync auto ;;
	blk--sandbox) echo on off ;;
	blk--block-size) echo 512 4096 ;;
	demo--pattern) echo random runs sparse sequential ;;
	demo--otherwise) echo go-on throttle stop fail ;;
	*) return 1 ;;
	esac
}

_silt() {
	local silt=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} option='' words i
	local command=${COMP_WORDS[1]-}

	COMPREPLY=()
	# Where = parts words, the option stands before it.
	if [ "$current" = = ]; then
		current=''
		option=${COMP_WORDS[COMP_CWORD - 1]}
	elif [ "${COMP_WORDS[COMP_CWORD - 1]}" = = ]; then
		option=${COMP_WORDS[COMP_CWORD - 2]}
	elif [[ $current == --*=* ]]; then
		option=${current%%=*}
		current=${current#*=}
	fi
	# Behind -- is the backend's command.
	for ((i = 1; i < COMP_CWORD; i++)); do
		if [ "${COMP_WORDS[i]}" = -- ]; then
			mapfile -t COMPREPLY < <(compgen -c -f -- "$current")
			return
		fi
	done
	if [ "$COMP_CWORD" = 1 ]; then
		words="$(_silt_commands "$silt") --help --version"
	elif [ "$command" = bench ] && [ "$COMP_CWORD" = 2 ]; then
		words="$(_silt_commands "$silt" bench) --help"
	elif [ -n "$option" ]; then
		words=$(_silt_values "$silt" "$command" "$option") || {
			mapfile -t COMPREPLY < <(compgen -f -- "$current")
			return
		}
	elif [ "$command" = bench ]; then
		words=$(_silt_options "$silt" bench "${COMP_WORDS[2]}")
	else
		words=$(_silt_options "$silt" "$command")
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
	if [ ${#COMPREPLY[@]} = 1 ] && [[ ${COMPREPLY[0]} == *= ]]; then
		compopt -o nospace 2>/dev/null
	fi
}

complete -F _silt silt
