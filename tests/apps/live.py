#!/usr/bin/env python3
"""live.py RDMASTAT DIR PORT ENDS SECS CONDITION [SINCE]: waits until `rdmastat -c --json` shows
exactly ENDS ends of connections with that port (0: any), and CONDITION, a Python expression
over c, holds for each. Prints how long it took, counted from SINCE (a time as $EPOCHREALTIME
says it) if given; fails with what it saw last after SECS.
"""
import collections
import json
import os
import subprocess
import sys
import time

stat, where, port, ends, secs, cond = sys.argv[1:7]
since = float(sys.argv[7]) if len(sys.argv) > 7 else time.time()
end = since + float(secs)
cond = compile(cond, "condition", "eval")
while True:
    asked = time.time()
    out = subprocess.run([stat, "-c", "--json"], env=dict(os.environ, RDMASHIM_STAT_DIR=where),
                         stdout=subprocess.PIPE, check=True).stdout
    rows = [c for c in json.loads(out)["connections"]
            if port == "0" or port in (c["local"].rpartition(":")[2], c["peer"].rpartition(":")[2])]
    good = [c for c in rows if eval(cond)]
    if len(rows) == int(ends) == len(good):
        print("%.0f ms" % ((asked - since) * 1000))
        break
    if asked >= end:
        seen = collections.Counter("%s: tx %s rx %s %s" % (c["program"], c["tx_path"], c["rx_path"],
                                                           c["reason"]) for c in rows)
        print("after %s s %d of %s ends; of these %d as wanted (%s); " % (secs, len(rows), ends,
            len(good), sys.argv[6])
              + ", ".join("%d %s" % (n, k) for k, n in seen.items()))
        sys.exit(1)
    time.sleep(0.02)
