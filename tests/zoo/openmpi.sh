#!/bin/bash
# Open MPI by its TCP transport only (btl tcp), as between hosts.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
. "$TOP/tests/zoo/mpi.bash"
RANKS=4 RUNS=2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
version=$(ompi_info --version 2>/dev/null | sed -n 's/^Open MPI v//p')
mpi_zoo mpicc.openmpi "$version" mpirun.openmpi --oversubscribe -n $RANKS \
	--mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo \
	--mca mpi_yield_when_idle 1
