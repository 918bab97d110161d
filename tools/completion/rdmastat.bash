# Completion for rdmastat and rdmarun in bash. What there is to complete is asked from the
# programs themselves.

_rdmastat_options() {
	"$1" "${@:2}" --help 2>/dev/null |
		sed -n 's/^ *-[a-zA-Z], \(--[a-z-]*\).*/\1/p; t; s/^ *\(--[a-z-]*\).*/\1/p'
}

# The processes under the library; or, behind PID and a colon, its connections' descriptors.
_rdmastat_pids() {
	rdmastat -o pid 2>/dev/null | sed -n 's/^ *\([0-9][0-9]*\) *$/\1/p'
}
_rdmastat_fds() {
	[[ $1 =~ ^[0-9]+$ ]] && rdmastat conn -o fd pid = "$1" 2>/dev/null |
		sed -n 's/^ *\([0-9][0-9]*\) *$/\1/p'
}

_rdmastat() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} cmd='' w i
	local commands="overview conn link listen calls dev qp mr staging why stacks
		top watch prometheus record report reset doctor bundle policy reasons"

	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		w=${COMP_WORDS[i]}
		[[ " $commands " == *" $w "* && $w != watch ]] && { cmd=$w; break; }
	done
	case $prev in
	-o | --columns)
		w=$(rdmastat "${cmd:-overview}" -o help 2>/dev/null | cut -d' ' -f1)
		local before=''
		[[ $cur == *,* ]] && before=${cur%,*},
		mapfile -t COMPREPLY < <(compgen -P "$before" -W "$w" -- "${cur##*,}")
		return ;;
	-s | --sort)
		mapfile -t COMPREPLY < \
			<(compgen \
			-W "$(rdmastat "${cmd:-overview}" -o help 2>/dev/null | cut -d' ' -f1)" -- \
			"$cur")
		return ;;
	-p | --pid)
		mapfile -t COMPREPLY < <(compgen -W "$(_rdmastat_pids)" -- "$cur")
		return ;;
	--show)
		mapfile -t COMPREPLY < <(compgen -W "own all" -- "$cur")
		return ;;
	--color)
		mapfile -t COMPREPLY < <(compgen -W "auto always never" -- "$cur")
		return ;;
	-f | --file | -l | --lib | -O | --output | --svg | --root)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return ;;
	esac
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_rdmastat_options rdmastat ${cmd:+"$cmd"})" \
			-- "$cur")
		return
	fi
	case $cmd in
	'') mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$cur") ;;
	conn | top) mapfile -t COMPREPLY < \
		<(compgen \
		-W "dport sport dst src path tx rx pid fd uid program role
			reason bytes cuts rewinds state established
			and or not tcp shm rdma client server" -- "$cur") ;;
	stacks) mapfile -t COMPREPLY < <(compgen -W "$(_rdmastat_pids)" -- "$cur") ;;
	why)	# a colon is a word of its own here
		if [[ $prev == : || $cur == : ]]; then
			w=$((COMP_CWORD - 1))
			if [[ $cur == : ]]; then cur=''; else ((w--)); fi
			mapfile -t COMPREPLY < <(compgen -W "$(_rdmastat_fds "${COMP_WORDS[w]}")" \
				-- "$cur")
			return
		fi
		mapfile -t COMPREPLY < <(compgen -W "$(_rdmastat_pids)" -- "$cur") ;;
	doctor) mapfile -t COMPREPLY < <(compgen -A hostname -- "$cur") ;;
	record | report) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	policy)
		case $prev in
		policy) mapfile -t COMPREPLY < \
			<(compgen -W "check explain show keys set unset import" -- "$cur") ;;
		set | unset) mapfile -t COMPREPLY < \
			<(compgen \
			-W "mode key_file rdma_networks rdma_via discovery_dir cross_ns_dir
				peer_users
				$(rdmastat policy keys | sed 1d | cut -d' ' -f1)" -- "$cur") ;;
		mode) mapfile -t COMPREPLY < <(compgen -W "on off" -- "$cur") ;;
		check | import) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
		esac ;;
	esac
}
complete -o filenames -F _rdmastat rdmastat

_rdmarun() {
	local cur=${COMP_WORDS[COMP_CWORD]} i

	# Behind the program's name its own completion is in charge.
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-p | --policy | -n | --count | -l | --lib) ((i++)) ;;
		--) ((i++)); break ;;
		-*) ;;
		*) break ;;
		esac
	done
	if ((i < COMP_CWORD)) && declare -F _command_offset >/dev/null; then
		_command_offset $i
		return
	fi
	case ${COMP_WORDS[COMP_CWORD - 1]} in
	-p | --policy | -l | --lib) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
	esac
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_rdmastat_options rdmarun)" -- "$cur")
	else
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	fi
}
complete -o filenames -F _rdmarun rdmarun
