// Pair.java - java Pair.java server PORT | client PORT: a server with a Selector (echo) on PORT and
// one with a thread per connection (sums) on PORT + 1; a client that uses both, by channels, by
// sockets with timeouts, by AsynchronousSocketChannel, and that closes a socket in which another
// thread reads. Says what it saw, in an order that does not depend on time.
import java.io.*;
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.zip.CRC32;

public class Pair {
	static final int CONNS = 40, ROUNDS = 50, BULK = 20_000_000;

	static byte[] pattern(int n, int seed) {
		byte[] b = new byte[n];
		int x = seed * 0x9e3779b9 + 1;
		for (int i = 0; i < n; i++) {
			x ^= x << 13;
			x ^= x >>> 17;
			x ^= x << 5;
			b[i] = (byte) x;
		}
		return b;
	}

	// ---- servers

	static void echo(int port) throws IOException {
		Selector sel = Selector.open();
		ServerSocketChannel l =
			ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", port));
		l.configureBlocking(false);
		l.register(sel, SelectionKey.OP_ACCEPT);
		while (true) {
			sel.select();
			for (Iterator<SelectionKey> it = sel.selectedKeys().iterator();
			     it.hasNext();) {
				SelectionKey k = it.next();
				it.remove();
				try {
					if (k.isAcceptable()) {
						SocketChannel c = l.accept();
						c.configureBlocking(false);
						c.register(sel, SelectionKey.OP_READ,
							   ByteBuffer.allocateDirect(65536));
						continue;
					}
					SocketChannel c = (SocketChannel) k.channel();
					ByteBuffer b = (ByteBuffer) k.attachment();
					if (k.isReadable() && c.read(b) < 0 && b.position() == 0) {
						c.close();
						continue;
					}
					b.flip();
					c.write(b);
					b.compact();
					k.interestOps(
						(b.hasRemaining() ? SelectionKey.OP_READ : 0) |
						(b.position() > 0 ? SelectionKey.OP_WRITE : 0));
				} catch (IOException e) {
					k.channel().close();
				}
			}
		}
	}

	static void sums(int port) throws IOException {
		ServerSocket l = new ServerSocket(port, 50, InetAddress.getByName("127.0.0.1"));
		while (true) {
			Socket s = l.accept();
			new Thread(() -> {
				try (s) {
					CRC32 crc = new CRC32();
					byte[] b = new byte[100_000];
					InputStream in = s.getInputStream();
					long n = 0;
					for (int r; (r = in.read(b)) > 0; n += r)
						crc.update(b, 0, r);
					DataOutputStream out =
						new DataOutputStream(s.getOutputStream());
					out.writeLong(n);
					out.writeLong(crc.getValue());
					out.flush();
				} catch (IOException e) {
					// the client closed, or asked for too much patience: its
					// affair
				}
			}).start();
		}
	}

	// ---- the client

	// A channel that does not block may take less, also of an empty connection.
	static void send(SocketChannel c, byte[] b) throws IOException {
		for (ByteBuffer left = ByteBuffer.wrap(b); left.hasRemaining();)
			c.write(left);
	}

	static String channels(int port) throws Exception {
		Selector sel = Selector.open();
		int[] round = new int[CONNS], got = new int[CONNS];
		ByteBuffer in = ByteBuffer.allocate(5000);
		int left = CONNS, wrong = 0;
		for (int i = 0; i < CONNS; i++) {
			SocketChannel c = SocketChannel.open();
			c.configureBlocking(false);
			c.connect(new InetSocketAddress("127.0.0.1", port));
			c.register(sel, SelectionKey.OP_CONNECT, i);
		}
		while (left > 0) {
			sel.select();
			for (Iterator<SelectionKey> it = sel.selectedKeys().iterator();
			     it.hasNext();) {
				SelectionKey k = it.next();
				it.remove();
				SocketChannel c = (SocketChannel) k.channel();
				int i = (Integer) k.attachment();
				if (k.isConnectable()) {
					c.finishConnect();
					k.interestOps(SelectionKey.OP_READ);
					send(c, pattern(1000, i));
					continue;
				}
				in.clear();
				int n = c.read(in);
				byte[] want = pattern(1000, i * ROUNDS + round[i]);
				if (round[i] == 0)
					want = pattern(1000, i);
				for (int p = 0; p < n; p++)
					if (in.get(p) != want[got[i] + p])
						wrong++;
				got[i] += n;
				if (got[i] < 1000)
					continue;
				got[i] = 0;
				if (++round[i] == ROUNDS) {
					c.close();
					left--;
				} else {
					send(c, pattern(1000, i * ROUNDS + round[i]));
				}
			}
		}
		return "wrong " + wrong;
	}

	static String bulk(int port, int n, boolean gather) throws Exception {
		byte[] data = pattern(n, n);
		CRC32 crc = new CRC32();
		crc.update(data);
		try (SocketChannel c =
			     SocketChannel.open(new InetSocketAddress("127.0.0.1", port))) {
			ByteBuffer[] v =
				gather ? new ByteBuffer[] { ByteBuffer.wrap(data, 0, n / 3),
							    ByteBuffer.wrap(data, n / 3,
									    n - n / 3) }
				       : new ByteBuffer[] { ByteBuffer.wrap(data) };
			while (v[v.length - 1].hasRemaining())
				c.write(v);
			c.shutdownOutput();
			DataInputStream in = new DataInputStream(c.socket().getInputStream());
			return in.readLong() + " " + (in.readLong() == crc.getValue());
		}
	}

	// FileChannel.transferTo: sendfile
	static String file(int port) throws Exception {
		File f = File.createTempFile("pair", null);
		byte[] data = pattern(5_000_000, 5);
		CRC32 crc = new CRC32();
		crc.update(data);
		try (FileOutputStream o = new FileOutputStream(f)) {
			o.write(data);
		}
		try (SocketChannel c = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
		     FileChannel in = new FileInputStream(f).getChannel()) {
			for (long at = 0; at < data.length;)
				at += in.transferTo(at, data.length - at, c);
			c.shutdownOutput();
			DataInputStream r = new DataInputStream(c.socket().getInputStream());
			return r.readLong() + " " + (r.readLong() == crc.getValue());
		} finally {
			f.delete();
		}
	}

	static String timeout(int port) throws Exception {
		try (Socket s = new Socket("127.0.0.1", port)) {
			for (int i = 0; i < 200; i++) {	/* used enough to be upgraded */
				s.getOutputStream().write(i);
				if (s.getInputStream().read() != i)
					return "wrong";
			}
			s.setSoTimeout(200);
			try {
				s.getInputStream().read();
				return "read";
			} catch (SocketTimeoutException e) {
				s.getOutputStream().write(7);
				return "timed out, then " + s.getInputStream().read();
			}
		}
	}

	// The JDK wakes the reader by a signal and gives the descriptor's number away by dup2()
	// first.
	static String closed(int port, boolean channel) throws Exception {
		SocketChannel c = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
		Socket s = channel ? null : new Socket("127.0.0.1", port);
		FutureTask<String> t = new FutureTask<>(() -> {
			try {
				ByteBuffer b = ByteBuffer.allocate(10);
				for (int i = 0; i < 200; i++) {
					if (channel) {
						c.write(ByteBuffer.wrap(new byte[] { 1 }));
						b.clear();
						c.read(b);
					} else {
						s.getOutputStream().write(1);
						s.getInputStream().read();
					}
				}
				b.clear();
				return "read " + (channel ? c.read(b) : s.getInputStream().read());
			} catch (IOException e) {
				return e.getClass().getSimpleName();
			}
		});
		Thread th = new Thread(t);
		th.start();
		Thread.sleep(300);
		if (channel)
			c.close();
		else
			s.close();
		String said = t.get(20, TimeUnit.SECONDS);
		c.close();
		return said;
	}

	static String interrupted(int port) throws Exception {
		SocketChannel c = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
		FutureTask<String> t = new FutureTask<>(() -> {
			try {
				return "read " + c.read(ByteBuffer.allocate(10));
			} catch (IOException e) {
				return e.getClass().getSimpleName();
			}
		});
		Thread th = new Thread(t);
		th.start();
		Thread.sleep(200);
		th.interrupt();
		return t.get(20, TimeUnit.SECONDS) + ", open " + c.isOpen();
	}

	static String async(int port) throws Exception {
		AsynchronousSocketChannel c = AsynchronousSocketChannel.open();
		c.connect(new InetSocketAddress("127.0.0.1", port)).get();
		int wrong = 0;
		for (int i = 0; i < 300; i++) {
			byte[] want = pattern(3000, i);
			ByteBuffer out = ByteBuffer.wrap(want), in = ByteBuffer.allocate(3000);
			while (out.hasRemaining())
				c.write(out).get(20, TimeUnit.SECONDS);
			while (in.hasRemaining())
				c.read(in).get(20, TimeUnit.SECONDS);
			if (!Arrays.equals(want, in.array()))
				wrong++;
		}
		c.close();
		return "wrong " + wrong;
	}

	public static void main(String[] a) throws Exception {
		int port = Integer.parseInt(a[1]);
		if (a[0].equals("server")) {
			new Thread(() -> {
				try {
					sums(port + 1);
				} catch (IOException e) {
					e.printStackTrace();
					System.exit(1);
				}
			}).start();
			echo(port);
		}
		System.out.println("channels: " + channels(port));
		System.out.println("bulk: " + bulk(port + 1, BULK, false));
		System.out.println("gathered: " + bulk(port + 1, 3_000_001, true));
		System.out.println("file: " + file(port + 1));
		System.out.println("timeout: " + timeout(port));
		System.out.println("closed channel: " + closed(port, true));
		System.out.println("closed socket: " + closed(port, false));
		System.out.println("interrupted: " + interrupted(port));
		System.out.println("async: " + async(port));
		System.exit(0);
	}
}
