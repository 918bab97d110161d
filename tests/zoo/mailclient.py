"""mailclient.py PORT: four IMAP clients at once put messages, fetch them whole and in parts, copy,
search and delete. Prints sums of what came."""
import hashlib
import imaplib
import sys
import threading

PORT = int(sys.argv[1])
imaplib._MAXLINE = 100000000
said = {}


def message(n, size):
    line = hashlib.sha256(b"%d" % n).hexdigest()
    text = "\r\n".join("%d %s" % (i, line) for i in range(size // 70 + 1))
    return ("From: a@zoo\r\nTo: b@zoo\r\nSubject: number %d\r\n\r\n%s\r\n" % (n, text)).encode()


def ok(answer):
    assert answer[0] == "OK", answer
    return answer[1]


def client(who):
    h = hashlib.sha256()
    m = imaplib.IMAP4("127.0.0.1", PORT, timeout=30)
    ok(m.login("user%d" % who, "secret"))
    ok(m.create("box"))
    for n in range(60):
        ok(m.append("box", None, '"01-Jan-2026 00:00:00 +0000"', message(n, n * n * 10)))
    ok(m.append("box", None, '"01-Jan-2026 00:00:00 +0000"', message(99, 3000000)))
    ok(m.select("box"))
    for part in ("BODY.PEEK[]", "BODY.PEEK[HEADER]", "BODY.PEEK[]<1000.2000>", "RFC822.SIZE",
                 "ENVELOPE"):
        for item in ok(m.fetch("1:*", "(%s)" % part)):
            h.update(b"\0".join(item) if isinstance(item, tuple) else item)
    for n in range(1, 61):
        for item in ok(m.fetch(b"%d" % n, "(BODY.PEEK[TEXT])")):
            h.update(b"\0".join(item) if isinstance(item, tuple) else item)
    found = ok(m.search(None, "SUBJECT", '"number 1"'))
    ok(m.create("other"))
    ok(m.copy("1:20", "other"))
    ok(m.store("1:30", "+FLAGS", r"(\Deleted)"))
    gone = len(ok(m.expunge()))
    left = ok(m.status("other", "(MESSAGES)"))
    m.logout()
    said[who] = (h.hexdigest(), found, gone, left)


threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
for who in sorted(said):
    print(who, *said[who])
sys.exit(len(said) != 4)
