#!/bin/bash
# The samples of conf/slurm in a real Slurm: a controller, a node (this machine) and munge, all
# private to this test. One job is a server and a client in two tasks; what its TaskProlog says
# makes both of them leave TCP, rdmastat shows it while they run, the summary is where the sample
# puts it, and the Epilog removes the counters of a task that was killed. A job that does not ask
# for the library gets none. As root; needs slurmd, slurmctld, slurm-client and munge. Their
# services need not run, and are not touched if they do.
. "$(dirname "$0")/../apps/lib.sh"
[[ -n $SHIM ]] || skip "no library (SHIM=)"
((EUID == 0)) || skip "slurmd wants to be root"
for c in slurmctld slurmd srun munged; do
	command -v $c >/dev/null ||
		skip "no $c: apt-get install slurmd slurmctld slurm-client munge"
done
MODES=both
begin_mode both
D=$TMP/opt
mkdir -p "$D" "$TMP/state" "$TMP/spool" "$TMP/job"
make -s -C "$TOP" install DESTDIR= PREFIX="$D" >"$TMP/make.log" 2>&1 ||
	fail "make install: $(tail "$TMP/make.log")"
LIB=$D/lib/librdmashim.so
# The Epilog is run without the environment of anybody: the PATH that finds rdmastat and the
# directory are this test's.
printf '#!/bin/sh\nexport PATH=%s/bin:/usr/bin:/bin RDMASHIM_STAT_DIR=%s\n'\
'. %s/share/rdmashim/slurm/epilog.sh\n' "$D" "$STAT" "$D" >"$TMP/epilog"
chmod 755 "$TMP/epilog"

# ---- munge, a controller and a node of their own
free_port ctl
free_port node
head -c 128 /dev/urandom >"$TMP/munge.key"
chmod 600 "$TMP/munge.key"
mkdir -m 755 "$TMP/munge"
munged --foreground --force --socket="$TMP/munge/socket" --key-file="$TMP/munge.key" \
	--pid-file="$TMP/munge/pid" --log-file="$TMP/munge.log" \
	--seed-file="$TMP/munge/seed" >"$TMP/munged.log" 2>&1 3>&- &
PIDS+=("$!")
cat >"$TMP/slurm.conf" <<EOF
ClusterName=rdmashim
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$ctl
SlurmdPort=$node
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$TMP/munge/socket
CredType=cred/munge
StateSaveLocation=$TMP/state
SlurmdSpoolDir=$TMP/spool
SlurmctldPidFile=$TMP/slurmctld.pid
SlurmdPidFile=$TMP/slurmd.pid
SlurmctldLogFile=$TMP/slurmctld.log
SlurmdLogFile=$TMP/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
KillWait=2
TaskProlog=$D/share/rdmashim/slurm/task_prolog.sh
Epilog=$TMP/epilog
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
export SLURM_CONF=$TMP/slurm.conf
within 15 test -S "$TMP/munge/socket" || fail "munged does not start: $(cat "$TMP/munged.log")"
slurmctld -D >"$TMP/ctld.log" 2>&1 3>&- &
PIDS+=("$!")
slurmd -D -N "$(hostname -s)" >"$TMP/d.log" 2>&1 3>&- &
PIDS+=("$!")
# Steps are nobody's children: the controller ends them.
idle_all() { [[ -z $(squeue -h 2>/dev/null) ]]; }
trap 'rc=$?; timeout 5 scancel -u root 2>/dev/null; ((rc == 0)) || within 10 idle_all
	(exit $rc); cleanup' EXIT
idle_node() { [[ $(sinfo -h -o %t 2>/dev/null) == idle ]]; }
within 40 idle_node ||
	fail "the node does not come up: $(sinfo 2>&1; tail -n 5 "$TMP/d.log" "$TMP/ctld.log")"
say "$(srun --version), node $(sinfo -h -N -o '%N %t')"

# ---- a job of two tasks: a server and a client
free_port port
cat >"$TMP/task.sh" <<EOF
#!/bin/bash
echo "task \$SLURM_PROCID preload '\$LD_PRELOAD'"
if [[ \$SLURM_PROCID == 0 ]]; then exec $B/apps/idle server epoll $port; fi
until [[ -n $(ss -Htln "sport = :$port") ]]; do sleep 0.1; done
exec $B/apps/idle client poll $port 3 $TMP/fifo
EOF
chmod 755 "$TMP/task.sh"
job() {	# LOG VARIABLES: a job in the background
	rm -f "$TMP/fifo"
	mkfifo "$TMP/fifo"
	(cd "$TMP/job" && RDMASHIM_STAT_DIR=$STAT RDMASHIM_CONF=$CONF exec srun --overcommit -n 2 \
		--export="ALL$2" "$TMP/task.sh") >"$1" 2>&1 3>&- &
	JOB=$!
	PIDS+=("$JOB")
	exec 4<>"$TMP/fifo"
	within 40 grep -q connected "$1" || fail "the job does not run: $(cat "$1" "$TMP/d.log")"
}
unset LD_PRELOAD RDMASHIM_LIB
printf 'earn_bytes 0\nearn_rounds 0\n' >"$CONF"
job "$TMP/job1.log" ",RDMASHIM_JOB=1,RDMASHIM_LIB=$LIB"
(($(grep -c "preload '$LIB'" "$TMP/job1.log") == 2)) ||
	fail "the tasks do not have the library: $(cat "$TMP/job1.log")"
echo "run 20" >&4
export RDMASHIM_STAT_DIR=$STAT
fast() { [[ $("$D/bin/rdmastat" conn -o shm 'path shm' | grep -c '^ *[1-9]') == 6 ]]; }
within 20 fast || fail "not on shared memory: $("$D/bin/rdmastat" conn)"
say "$("$D/bin/rdmastat" | grep total)"
"$D/bin/rdmastat" conn
# The client ends by itself and leaves its line; the server is killed, and its counters stay until
# the Epilog.
files() { ls "$STAT" | wc -l; }
(($(files) == 2)) || fail "$(ls "$STAT")"
echo quit >&4
summary() { grep -hs 'left TCP: ' "$TMP"/job/rdmashim.*; }
within 20 summary || fail "no summary: $(ls "$TMP/job")"
pkill -KILL -f "^$B/apps/idle server epoll $port\$"
wait "$JOB"
no_files() { (($(files) == 0)); }
within 30 no_files || fail "the Epilog left $(ls "$STAT"): $(tail -n 5 "$TMP/d.log")"

# ---- one that does not ask for it
within 40 idle_node || fail "the node is not idle again: $(sinfo)"
job "$TMP/job2.log" ",RDMASHIM_LIB=$LIB"
(($(grep -c "preload ''" "$TMP/job2.log") == 2)) ||
	fail "a job got what it did not ask for: $(cat "$TMP/job2.log")"
echo quit >&4
no_files || fail "counters of a job without the library"
scancel -u root
wait "$JOB"
within 20 idle_all || fail "a job is left: $(squeue)"
exit 0
