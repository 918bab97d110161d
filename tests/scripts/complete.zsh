# What the completion in DIRECTORY offers for the last of WORDS, a line each: complete.zsh
# DIRECTORY WORDS... zsh's own functions that would show it on a terminal are replaced by ones
# that print.
fpath=($1 $fpath)
shift
autoload -Uz compinit
compinit -u -D 2>/dev/null
[[ $_comps[rdmastat] == _rdmastat && $_comps[rdmarun] == _rdmastat ]] ||
	{ print "zsh did not take it"; exit 1 }
_describe() { print -rl -- ${(P)2%%:*} }
compadd() { if [[ $1 == -a ]] { print -rl -- ${(P)2} } else { print -rl -- $@ } }
_files() { print "any file" }
_hosts() { print "any host" }
_command_names() { print "any program" }
_normal() { print -r -- "other program: $words" }
service=$1 words=("$@") CURRENT=$#
autoload -Uz _rdmastat
_rdmastat
