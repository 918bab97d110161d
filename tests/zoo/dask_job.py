"""dask_job.py scheduler|worker|client ADDRESS [NAME DIRECTORY]: dask's three kinds of process. The
client has blocks made, moved from worker to worker, and prints a sum of what came back.
dask_job.py blocks ADDRESS: a client that has 40 blocks of 8 MB moved, and prints how long it took
them (for tests/bench/hits.sh)."""
import asyncio
import hashlib
import sys
import time

ROLE, ADDRESS = sys.argv[1], sys.argv[2]


async def scheduler():
    from distributed import Scheduler
    port = int(ADDRESS.rsplit(":", 1)[1])
    async with Scheduler(host="127.0.0.1", port=port, dashboard=False, dashboard_address=None) as s:
        await s.finished()


async def worker():
    from distributed import Worker
    async with Worker(ADDRESS, name=sys.argv[3], nthreads=2, host="127.0.0.1", dashboard=False,
                      local_directory=sys.argv[4]) as w:
        await w.finished()


def block(i):
    return hashlib.sha256(b"%d" % i).digest() * (3000 + i * 101)


def joined(parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()


def client():
    from distributed import Client
    with Client(ADDRESS, timeout=30) as c:
        c.wait_for_workers(2, timeout=30)
        names = sorted(c.scheduler_info()["workers"])
        blocks = [c.submit(block, i, workers=[names[i % 2]], pure=False) for i in range(80)]
        print("joined", c.submit(joined, blocks, workers=[names[0]], pure=False).result(timeout=60))
        print("other", c.submit(joined, blocks, workers=[names[1]], pure=False).result(timeout=60))
        print("gathered", joined(c.gather(blocks)))
        [sent] = c.scatter([block(20000)], broadcast=True)
        print("scattered", c.submit(joined, [sent]).result(timeout=60))
        numbers = c.map(lambda x: x * x, range(1000), pure=False)
        print("sum", c.submit(sum, numbers).result(timeout=60))
        try:
            c.submit(lambda: 1 // 0).result(timeout=30)
        except ZeroDivisionError as e:
            print("error", e)
        c.shutdown()


def blocks():
    from distributed import Client, wait
    with Client(ADDRESS, timeout=30) as c:
        c.wait_for_workers(2, timeout=30)
        one, two = sorted(c.scheduler_info()["workers"])
        made = c.map(lambda i: bytes([i]) * 8000000, range(40), workers=[one], pure=False)
        wait(made)
        begun = time.monotonic()
        sizes = c.gather(c.map(len, made, workers=[two], pure=False))
        print("took %.6f" % (time.monotonic() - begun))
        assert sizes == [8000000] * 40
        c.shutdown()


if ROLE in ("client", "blocks"):
    {"client": client, "blocks": blocks}[ROLE]()
else:
    asyncio.run({"scheduler": scheduler, "worker": worker}[ROLE]())
