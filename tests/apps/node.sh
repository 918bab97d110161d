#!/bin/bash
# A node http server (libuv: epoll in its own loop) and a node client: many requests on kept connections, 20 MB down and up.
# TIMEOUT: 60
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
	const q = http.request({ port, path, agent, host: "127.0.0.1", method: body ? "POST" : "GET" }, r => {
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

job() {
	local port
	free_port port
	server node "$TMP/server.js" "$port"
	wait_port "$port"
	client timeout 40 node "$TMP/client.js" "$port" >>"$OUT" 2>"$TMP/client.log" || fail "client: $(cat "$TMP/client.log")"
	stop "$SRV"
}
for_modes job 100000
