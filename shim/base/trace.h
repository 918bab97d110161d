/*
 * trace.h - probes for bpftrace, SystemTap and perf (USDT): one nop each until somebody
 * attaches. docs/tuning.md lists them with their arguments, conf/examples/rdmashim.bt reads
 * them. Built without <sys/sdt.h>, the library has none.
 *
 * 	TRACE2(cut, fd, offset)		the probe rdmashim:cut
 */
#ifndef RDMASHIM_TRACE_H
#define RDMASHIM_TRACE_H

#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define TRACE1(name, a)		 DTRACE_PROBE1(rdmashim, name, a)
#define TRACE2(name, a, b)	 DTRACE_PROBE2(rdmashim, name, a, b)
#define TRACE3(name, a, b, c)	 DTRACE_PROBE3(rdmashim, name, a, b, c)
#else
#define TRACE1(name, a)		 ((void)(a))
#define TRACE2(name, a, b)	 ((void)(a), (void)(b))
#define TRACE3(name, a, b, c)	 ((void)(a), (void)(b), (void)(c))
#endif

#endif
