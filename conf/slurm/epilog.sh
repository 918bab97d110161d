#!/bin/sh
# Slurm Epilog (as root, on each node of the job): forget the counters of the job's processes that
# ended. In slurm.conf:  Epilog=/etc/slurm/epilog.sh
command -v rdmastat >/dev/null && rdmastat >/dev/null 2>&1
exit 0
