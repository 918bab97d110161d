"""Echo over asyncio with many clients at once; every byte is verified by the clients.

asyncio-echo.py server PORT | client PORT CLIENTS ROUNDS SECONDS (rounds 0: until the time is
over), at $ECHO_ADDR
"""
import asyncio
import hashlib
import os
import sys
import time

ADDR = os.environ.get("ECHO_ADDR", "127.0.0.1")


async def echo(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except ConnectionError:
        pass
    finally:
        writer.close()


def block(client, number):
    """The bytes of one round: 1 to about 20000, different in each."""
    seed = hashlib.sha256(b"%d/%d" % (client, number)).digest()
    return (seed * (1 + (client * 31 + number * 17) % 600))[: 1
                                                            + (client * 7919
                                                                + number * 104729) % 19200]


async def one_client(port, client, rounds, end):
    reader, writer = await asyncio.open_connection(ADDR, port)
    number = count = 0
    while (number < rounds) if rounds else (time.monotonic() < end):
        data = block(client, number)
        writer.write(data)
        await writer.drain()
        back = await reader.readexactly(len(data))
        if back != data:
            sys.exit(f"client {client}, round {number}: wrong bytes")
        count += len(data)
        number += 1
    writer.write_eof()
    if await reader.read() != b"":
        sys.exit(f"client {client}: something after the end")
    writer.close()
    await writer.wait_closed()
    return count


async def clients(port, n, rounds, seconds):
    end = time.monotonic() + seconds
    tasks = [one_client(port, i, rounds, end) for i in range(n)]
    # A round that never ends is a failure, not a hang.
    counts = await asyncio.wait_for(asyncio.gather(*tasks), (seconds if not rounds else 0) + 60)
    print(f"{n} clients ok, {sum(counts) if rounds else '-'} bytes")
    if not rounds:
        print(f"{sum(counts)} bytes", file=sys.stderr)


async def serve(port):
    server = await asyncio.start_server(echo, ADDR, port, backlog=1024)
    async with server:
        await server.serve_forever()


if sys.argv[1] == "server":
    asyncio.run(serve(int(sys.argv[2])))
else:
    asyncio.run(clients(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))
