#!/bin/bash
# A node http server (libuv: epoll in its own loop) and a node client: many requests on kept
# connections, 20 MB down and up. Then plain sockets (net): lines, 20 MB against a reader that
# pauses (for long enough to be cut over on a crowded machine, too), half-close, resets. Both once
# more with libuv's io_uring, where connections stay on TCP and only the bytes count.
# TIMEOUT: 240
. "$(dirname "$0")/lib.sh"
command -v node >/dev/null || skip "no node"
cat >"$TMP/server.js" <<'END'
const http = require("http"), crypto = require("crypto");
const big = Buffer.alloc(20000000, i => i);
for (let i = 0; i < big.length; i += 4) big.writeUInt32LE((i * 2654435761) >>> 0, i);
http.createServer((q, r) => {
	if (q.method === "POST") {
		const h = crypto.createHash("sha256");
		q.on("data", d => h.update(d));
		q.on("end", () => r.end(h.digest("hex")));
	} else
		r.end(q.url === "/big" ? big : "answer to " + q.url);
}).listen(+process.argv[2], "127.0.0.1");
END
cat >"$TMP/client.js" <<'END'
const http = require("http"), crypto = require("crypto");
const agent = new http.Agent({ keepAlive: true, maxSockets: 4 }), port = +process.argv[2];
const go = (path, body) => new Promise((yes, no) => {
	const q = http.request({ port, path, agent, host: "127.0.0.1", 
		method: body ? "POST" : "GET" }, r => {
		const parts = [];
		r.on("data", d => parts.push(d));
		r.on("end", () => yes(Buffer.concat(parts)));
		r.on("error", no);
	});
	q.on("error", no);
	q.end(body);
});
const sum = b => crypto.createHash("sha256").update(b).digest("hex");
(async () => {
	const all = await Promise.all([...Array(2000).keys()].map(i => go("/" + i)));
	console.log(sum(Buffer.concat(all)));
	const big = await go("/big");
	console.log(big.length, sum(big));
	console.log((await go("/", big)).toString() === sum(big));
	agent.destroy();
})().catch(e => { console.error(e); process.exit(1); });
END

cat >"$TMP/netserver.js" <<'END'
const net = require("net");
net.createServer({ allowHalfOpen: true }, s => {
	s.on("error", () => {});
	s.on("data", d => {
		if (d.includes("RESET")) return s.resetAndDestroy();
		if (!s.write(d)) { s.pause(); s.once("drain", () => s.resume()); }
	});
	s.on("end", () => s.end("bye"));
}).listen(+process.argv[2], "127.0.0.1");
END
cat >"$TMP/netclient.js" <<'END'
const net = require("net"), crypto = require("crypto"), port = +process.argv[2];
const fail = m => { console.error(m); process.exit(1); };
const open = () => new Promise((yes, no) => { const s = net.connect({ port, host: "127.0.0.1",
	allowHalfOpen: true }, () => yes(s)); s.once("error", no); });
const lines = async n => {
	const s = await open();
	s.setNoDelay(true);
	s.setEncoding("latin1");
	let have = "", want = null;
	s.on("data", d => { have += d; if (want && have.length >= want.n) { const w = want;
		want = null; const t = have.slice(0, w.n); have = have.slice(w.n); w.yes(t); } });
	for (let i = 0; i < n; i++) {
		const line = "line " + i + ".".repeat(i % 500) + "\n";
		const back = new Promise(yes => want = { n: line.length, yes });
		s.write(line);
		if (await back !== line) fail("line " + i);
	}
	const rest = new Promise(yes => { s.on("end", () => yes(have)); });
	s.end();
	return rest;
};
const bulk = async n => {
	const s = await open(), data = crypto.createHash("sha256").update("x").digest(),
		chunk = Buffer.concat(Array(1000).fill(data));
	const h = crypto.createHash("sha256"), want = crypto.createHash("sha256");
	let got = 0;
	s.on("data", d => {
		got += d.length;
		h.update(d);
		if (Math.random() < 0.05) {	/* a reader that rests */
			s.pause(); setTimeout(() => s.resume(), 5);
		}
	});
	for (let i = 0; i < n; i += chunk.length) {
		want.update(chunk);
		if (!s.write(chunk)) await new Promise(yes => s.once("drain", yes));
	}
	s.end();
	want.update("bye");
	await new Promise(yes => s.on("end", yes));
	return got + " " + (h.digest("hex") === want.digest("hex"));
};
const reset = async () => {
	const s = await open();
	await new Promise(yes => { s.once("data", yes); s.write("hello"); });
	return new Promise(yes => { s.once("error", e => yes(e.code));
		s.on("close", () => yes("closed")); s.write("RESET"); });
};
(async () => {
	console.log(await Promise.all([lines(200), lines(200), lines(200)]));
	console.log(await Promise.all([bulk(2e7), bulk(2e7)]));
	console.log(await Promise.all([reset(), reset(), reset()]));
	process.exit(0);
})().catch(e => fail(e));
END

# pair SERVER CLIENT
pair() {
	local port
	free_port port
	server env UV_USE_IO_URING="$RING" node "$TMP/$1.js" "$port"
	wait_port "$port"
	client timeout 150 env UV_USE_IO_URING="$RING" node "$TMP/$2.js" "$port" >>"$OUT" \
		2>"$TMP/client.log" || fail "$2, status $?: $(cat "$TMP/client.log")"
	stop "$SRV"
}
job() { pair server client; }
netjob() { pair netserver netclient; }
# WHAT BYTES: and with io_uring against the same bare run
ways() {
	RING=0
	for_modes "$1" "$2"
	[[ " $MODES " != *" both "* ]] || RING=1 MODES=both for_modes "$1" none
}
ways job 100000
ways netjob 1000000
