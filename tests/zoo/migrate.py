"""migrate.py SOURCE-QMP TARGET-QMP DIRECTORY CAPABILITY...: moves a guest by QMP over TCP,
while it runs and writes to memory, and prints a sum of the memory that it does not write to, as the
source and then the target has it. It must run on there."""
import hashlib
import json
import socket
import sys
import time

SOURCE, TARGET, WHERE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
CAPABILITIES = sys.argv[4:]
BASE, SIZE = 0x2000000, 100000000	# where the test has put a file
COUNTERS = 0x8000			# where the guest counts


class Monitor:
    def __init__(self, port):
        self.s = socket.create_connection(("127.0.0.1", port), timeout=40)
        self.f = self.s.makefile("rw")
        assert "QMP" in json.loads(self.f.readline())
        self.ask("qmp_capabilities")

    def ask(self, what, **arguments):
        self.f.write(json.dumps({"execute": what, "arguments": arguments}) + "\n")
        self.f.flush()
        while True:
            said = json.loads(self.f.readline())
            if "return" in said:
                return said["return"]
            if "error" in said:
                raise SystemExit("%s: %s" % (what, said["error"]))


def memory(m, base, size):
    path = WHERE + "/memory"
    m.ask("pmemsave", val=base, size=size, filename=path)
    with open(path, "rb") as f:
        return f.read()


def until(what, *args):
    end = time.monotonic() + 40
    while not what(*args):
        if time.monotonic() > end:
            raise SystemExit("%s does not come true" % what.__name__)
        time.sleep(0.05)


def counts(m):
    before = memory(m, COUNTERS, 4096)
    return before != memory(m, COUNTERS, 4096)


def moved(m):
    state = m.ask("query-migrate")
    if state.get("status") == "failed":
        raise SystemExit(str(state))
    return state.get("status") == "completed"


source, target = Monitor(SOURCE), Monitor(TARGET)
until(counts, source)	# the guest has booted
before = hashlib.sha256(memory(source, BASE, SIZE)).hexdigest()
for m in source, target:
    m.ask("migrate-set-capabilities",
          capabilities=[{"capability": c, "state": True} for c in CAPABILITIES])
    m.ask("migrate-set-parameters", **{"max-bandwidth": 1 << 30, "downtime-limit": 2000})
target.ask("migrate-incoming", uri="tcp:127.0.0.1:0")
port = target.ask("query-migrate")["socket-address"][0]["port"]
source.ask("migrate", uri="tcp:127.0.0.1:" + port)
until(moved, source)
until(lambda: target.ask("query-status")["status"] == "running")
after = hashlib.sha256(memory(target, BASE, SIZE)).hexdigest()
until(counts, target)
print("source", source.ask("query-status")["status"], "memory", before, "then", after)
for m in source, target:	# which may end before it has answered
    m.f.write('{"execute": "quit"}\n')
    m.f.flush()
