#!/bin/sh
# Slurm TaskProlog: what it prints as "export NAME=VALUE" becomes part of the task's environment.
# In slurm.conf:  TaskProlog=/etc/slurm/task_prolog.sh
# A job asks for the library with:  sbatch --export=ALL,RDMASHIM_JOB=1 ...

LIB=${RDMASHIM_LIB:-/usr/lib/x86_64-linux-gnu/librdmashim.so}

[ -n "$RDMASHIM_JOB" ] && [ -r "$LIB" ] || exit 0

# At the end: whatever the job preloads already keeps its place.
echo "export LD_PRELOAD=${LD_PRELOAD:+$LD_PRELOAD:}$LIB"
# A policy of the site for jobs, if there is one.
[ -r /etc/rdmashim/job.conf ] && echo "export RDMASHIM_CONF=/etc/rdmashim/job.conf"
# One line per process at its end, where the job's output goes.
[ -n "$SLURM_SUBMIT_DIR" ] && echo "export RDMASHIM_STATS=$SLURM_SUBMIT_DIR/rdmashim.$SLURM_JOB_ID"
exit 0
