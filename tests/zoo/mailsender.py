"""mailsender.py PORT: four clients at once, each of which sends mails of many sizes by SMTP on one
connection."""
import hashlib
import smtplib
import sys
import threading

PORT = int(sys.argv[1])
done = []


def client(who):
    with smtplib.SMTP("127.0.0.1", PORT, timeout=40) as s:
        for n in range(51):
            line = hashlib.sha256(b"%d %d" % (who, n)).hexdigest()
            size = 3000000 if n == 50 else n * n * 12
            text = "\r\n".join("%d %s" % (i, line) for i in range(size // 70 + 1))
            mail = "Subject: %d of %d\r\n\r\n%s\r\n.\r\nend\r\n" % (n, who, text)
            s.sendmail("a@zoo", ["b@zoo"], mail)
    done.append(who)


threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print("sent by", sorted(done))
