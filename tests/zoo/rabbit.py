#!/usr/bin/python3
"""rabbit.py PORT PORT: sends messages to a replicated queue at one node of a cluster, which
confirms each once both nodes have it. Another connection reads them at the other node. Prints
checksums of what came."""
import hashlib
import sys
import threading

import pika

SIZES = [10, 100, 1000, 30000, 200000] * 60 + [4000000] * 3


def channel(port):
    c = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))
    return c, c.channel()


def body(i):
    return hashlib.sha256(b"%d" % i).digest() * (SIZES[i] // 32 + 1)


def consume(port, queue, to):
    c, ch = channel(port)
    ch.basic_qos(prefetch_count=20)
    for method, _, got in ch.consume(queue):
        to.append(hashlib.sha256(got).hexdigest())
        ch.basic_ack(method.delivery_tag)
        if len(to) == len(SIZES):
            break
    ch.cancel()
    c.close()


def main():
    one, two = int(sys.argv[1]), int(sys.argv[2])
    c, ch = channel(one)
    ch.queue_declare("all", durable=True, arguments={"x-queue-type": "quorum"})
    ch.confirm_delivery()
    got = []
    taker = threading.Thread(target=consume, args=(two, "all", got))
    taker.start()
    for i in range(len(SIZES)):
        ch.basic_publish("", "all", body(i), pika.BasicProperties(delivery_mode=2))
    taker.join()
    whole = [hashlib.sha256(body(i)).hexdigest() for i in range(len(SIZES))]
    print("messages:", len(got), "in order:", got == whole)
    print("left:", ch.queue_declare("all", passive=True).method.message_count)
    c.close()


main()
