"""dask_job.py scheduler|worker|client ADDRESS [NAME DIRECTORY]: dask's three kinds of process. The
client has blocks made, moved from worker to worker, and prints a sum of what came back."""
import asyncio
import hashlib
import sys

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


if ROLE == "client":
    client()
else:
    asyncio.run({"scheduler": scheduler, "worker": worker}[ROLE]())
