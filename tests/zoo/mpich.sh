#!/bin/bash
# MPICH by UCX's TCP transport only, as between hosts. UCX has an epoll instance in another one.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
. "$TOP/tests/zoo/mpi.bash"
RANKS=2 RUNS=1	# they poll: more ranks than processors wait for each other's time slices
export UCX_TLS=tcp,self UCX_NET_DEVICES=lo
mpi_zoo mpicc.mpich "$(mpirun.mpich -info 2>/dev/null | sed -n 's/ *Version: *//p')" \
	mpirun.mpich -iface lo -n $RANKS
