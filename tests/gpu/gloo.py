#!/usr/bin/env python3
# gloo.py - torch.distributed with the gloo backend on CUDA tensors, two ranks over lo.
#	gloo.py bench MIB COUNT	[nccl]	GB/s of broadcast and allreduce; or with the nccl backend
#	gloo.py check			broadcast, scatter, gather, allgather, alltoall, allreduce
#					of every dtype against the CPU's
import os, subprocess, sys, time

if "RANK" not in os.environ:
    env = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
               MASTER_PORT=os.environ.get("PORT", "29511"), GLOO_SOCKET_IFNAME="lo")
    p = [subprocess.Popen([sys.executable] + sys.argv, env=dict(env, RANK=str(r))) for r in (0, 1)]
    sys.exit(max(abs(x.wait()) for x in p))

import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dev = torch.device("cuda", rank % torch.cuda.device_count())
torch.cuda.set_device(dev)
dist.init_process_group(sys.argv[4] if len(sys.argv) > 4 else "gloo")

def timed(f, n):
    for _ in range(5):
        f()
    torch.cuda.synchronize()
    dist.barrier()
    t = time.perf_counter()
    for _ in range(n):
        f()
    torch.cuda.synchronize()
    return (time.perf_counter() - t) / n

if sys.argv[1] == "bench":
    size, n = int(sys.argv[2]) << 20, int(sys.argv[3])
    x = torch.full((size // 4,), float(rank + 1), device=dev)
    b = timed(lambda: dist.broadcast(x, 0), n)
    assert bool((x == 1).all())
    a = timed(lambda: dist.all_reduce(x), n)
    if rank == 0:
        print("broadcast %.2f GB/s, allreduce %.2f GB/s" % (size / b / 1e9, size / a / 1e9))
else:
    bad = 0
    def same(what, got, want):
        global bad
        if not torch.equal(got.cpu(), want):
            bad += 1
            print("rank", rank, what, got.dtype, got.numel(), "differs")
    # As a training job does: the same tensor over and over, with other values each time. Here the
    # GPU path learns; later sizes hardly repeat, sums are written where was copied to, and what
    # was learned of a place is given up for longer and longer.
    x = torch.empty(2000000, device=dev)
    for rnd in range(24):
        want = torch.rand(2000000, generator=torch.Generator().manual_seed(rnd))
        if rank == rnd // 12:
            x.copy_(want)
        dist.broadcast(x, rnd // 12)
        same("broadcast again", x, want)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8,
                  torch.uint8, torch.int32, torch.int64):
        for n in (1000, 300000, 2000000):
            for rnd in range(3):
                g = torch.Generator().manual_seed(n + rnd)
                whole = [torch.randint(0, 50, (n,), generator=g).to(dtype) for _ in range(4)]
                mine = whole[rank].to(dev)
                x = mine.clone(); dist.broadcast(x, 1); same("broadcast", x, whole[1])
                x = mine.clone(); dist.all_reduce(x); same("allreduce", x, whole[0] + whole[1])
                out = [torch.empty_like(mine) for _ in range(2)]; dist.all_gather(out, mine)
                same("allgather", out[0], whole[0]); same("allgather", out[1], whole[1])
                out = [torch.empty_like(mine) for _ in range(2)] if rank == 0 else None
                dist.gather(mine, out, 0)
                if rank == 0:
                    same("gather", out[0], whole[0]); same("gather", out[1], whole[1])
                x = torch.empty_like(mine)
                dist.scatter(x, [w.to(dev) for w in whole[2:]] if rank == 1 else None, 1)
                same("scatter", x, whole[2 + rank])
                if dtype in (torch.float32, torch.int32):
                    half = n // 2 * 2
                    x = torch.empty(half, dtype=dtype, device=dev)
                    dist.all_to_all_single(x, mine[:half].contiguous())
                    same("alltoall", x, torch.cat([w[:half][rank * half // 2:(rank + 1) * half // 2]
                                                   for w in whole[:2]]))
    print("rank %d: %d differences" % (rank, bad))
    sys.exit(bad != 0)
dist.destroy_process_group()
