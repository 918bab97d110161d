// golang.go - both ends of tests/apps/golang.sh: `server PORT`, `client PORT`, `alone`. Each scene
// is a connection, or some, and a line of the client's output that is the same in every run.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func must(err error) {
	if err != nil {
		buf := make([]byte, 1<<16)
		fmt.Printf("failed: %v\n%s\n", err, buf[:runtime.Stack(buf, true)])
		os.Exit(1)
	}
}

func fill(b []byte, seed uint32) {
	for i := range b {
		seed = seed*1664525 + 1013904223
		b[i] = byte(seed >> 24)
	}
}

// ---- the server ----

// The first byte says what it does with the others.
func serve(c *net.TCPConn, over chan bool) {
	defer c.Close()
	var what [1]byte
	if _, err := io.ReadFull(c, what[:]); err != nil {
		return
	}
	switch what[0] {
	case 'e': // echo, by read and write
		buf := make([]byte, 65536)
		for {
			n, err := c.Read(buf)
			if n > 0 {
				if _, err := c.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	case 'c': // echo, by whatever io.Copy finds best
		io.Copy(c, c)
	case 's': // a sum, when the client has ended its half
		h := crc32.NewIEEE()
		n, _ := io.Copy(h, c)
		fmt.Fprintf(c, "%d %08x\n", n, h.Sum32())
	case 'f': // a file, which is the kernel's to send
		f, err := os.Open(os.Args[0])
		must(err)
		io.Copy(c, io.LimitReader(f, 1<<20))
		f.Close()
	case 'l': // late: an answer after 300 ms
		time.Sleep(300 * time.Millisecond)
		c.Write([]byte("late"))
	case 'q':
		over <- true
	}
}

func server(port string) {
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	must(err)
	over := make(chan bool)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c.(*net.TCPConn), over)
		}
	}()
	<-over
	l.Close()
}

// ---- the client ----

var port string

func dial(what byte) *net.TCPConn {
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	must(err)
	_, err = c.Write([]byte{what})
	must(err)
	return c.(*net.TCPConn)
}

func rounds(c net.Conn, n, size int) {
	out, in := make([]byte, size), make([]byte, size)
	for i := 0; i < n; i++ {
		fill(out, uint32(i))
		_, err := c.Write(out)
		must(err)
		_, err = io.ReadFull(c, in)
		must(err)
		if !bytes.Equal(out, in) {
			must(errors.New("other bytes came back"))
		}
	}
}

func echo() string {
	c := dial('e')
	rounds(c, 3000, 64)
	rounds(c, 100, 20000)
	c.Close()
	return "3100 rounds"
}

// More than the socket's buffers, one way and back at once.
func bulk(what byte) string {
	const size = 8 << 20
	c := dial(what)
	data := make([]byte, size)
	fill(data, 7)
	go func() {
		_, err := c.Write(data)
		must(err)
		must(c.CloseWrite())
	}()
	back, err := io.ReadAll(c)
	must(err)
	c.Close()
	return fmt.Sprintf("%d bytes back, the same: %v", len(back), bytes.Equal(back, data))
}

func half() string {
	c := dial('s')
	f, err := os.Open(os.Args[0])
	must(err)
	n, err := io.Copy(c, io.LimitReader(f, 3<<20)) // sendfile
	must(err)
	vec := net.Buffers{[]byte("by"), make([]byte, 100000), []byte("writev")}
	_, err = vec.WriteTo(c)
	must(err)
	must(c.CloseWrite())
	said, err := bufio.NewReader(c).ReadString('\n')
	must(err)
	c.Close()
	var got int64
	fmt.Sscanf(said, "%d", &got)
	return fmt.Sprintf("half closed, the sum of all is told: %v", got == n+100008)
}

func file() string {
	c := dial('f')
	got, err := io.ReadAll(c)
	must(err)
	want, err := os.ReadFile(os.Args[0])
	must(err)
	same := bytes.Equal(got, want[:len(got)])
	return fmt.Sprintf("a file of %d bytes, the same: %v", len(got), same)
}

func deadline() string {
	c := dial('l')
	defer c.Close()
	buf := make([]byte, 8)
	must(c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)))
	_, err := c.Read(buf)
	passed := errors.Is(err, os.ErrDeadlineExceeded)
	must(c.SetReadDeadline(time.Time{}))
	n, err := io.ReadFull(c, buf[:4])
	must(err)
	return fmt.Sprintf("a deadline passed: %v, then %q", passed, buf[:n])
}

func many() string {
	var g sync.WaitGroup
	for i := 0; i < 100; i++ {
		g.Add(1)
		go func() {
			defer g.Done()
			c := dial('e')
			rounds(c, 50, 300)
			c.Close()
		}()
	}
	g.Wait()
	return "100 connections at once"
}

// Echo in several goroutines while `disturb` runs again and again.
func while(disturb func(i int)) {
	var g sync.WaitGroup
	var over atomic.Bool
	for i := 0; i < 4; i++ {
		g.Add(1)
		go func() {
			defer g.Done()
			c := dial('e')
			rounds(c, 1500, 200)
			c.Close()
		}()
	}
	go func() { g.Wait(); over.Store(true) }()
	for i := 0; !over.Load(); i++ {
		disturb(i)
	}
}

var kept [][]byte

func collecting() string {
	while(func(i int) {
		kept = append(kept, make([]byte, 10000))
		if len(kept) > 100 {
			kept = nil
		}
		runtime.GC()
	})
	return "while memory is collected"
}

func signals() string {
	come := make(chan os.Signal, 1)
	signal.Notify(come, syscall.SIGUSR1)
	while(func(i int) {
		syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		<-come
	})
	signal.Stop(come)
	return "while signals come"
}

func profile() string {
	runtime.SetCPUProfileRate(1000)
	var out bytes.Buffer
	pprof.StartCPUProfile(&out) // keeps the rate
	while(func(i int) { fill(make([]byte, 1000), uint32(i)) })
	pprof.StopCPUProfile()
	return "while a profile is taken"
}

// A thread ends with a goroutine that has locked it.
func threads() string {
	while(func(i int) {
		done := make(chan bool)
		go func() {
			runtime.LockOSThread()
			c := dial('e')
			rounds(c, 1, 10)
			c.Close()
			done <- true
		}()
		<-done
	})
	return "while threads come and go"
}

func children() string {
	ran := 0
	while(func(i int) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		out, err := exec.CommandContext(ctx, os.Args[0], "print", "x").Output()
		cancel()
		must(err)
		if string(out) == "x\n" {
			ran++
		} else {
			must(fmt.Errorf("a child said %q", out))
		}
	})
	return fmt.Sprintf("while children run: %v", ran > 0)
}

// Children in a user namespace of their own have a copy of the parent's memory.
func namespaces() string {
	ran, refused := 0, error(nil)
	while(func(i int) {
		cmd := exec.Command(os.Args[0], "print", "x")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{
				{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		}
		if out, err := cmd.Output(); err != nil {
			refused = err
		} else if string(out) == "x\n" {
			ran++
		}
	})
	if refused != nil {
		return fmt.Sprintf("no children in user namespaces: %v", refused)
	}
	return fmt.Sprintf("while children in user namespaces run: %v", ran > 0)
}

// A connection goes to a child, which goes on with it.
func passed() string {
	c := dial('e')
	rounds(c, 200, 64)
	f, err := c.File()
	must(err)
	cmd := exec.Command(os.Args[0], "child")
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.CombinedOutput()
	must(err)
	f.Close()
	rounds(c, 50, 64)
	c.Close()
	return "a child had it: " + string(bytes.TrimSpace(out))
}

func child() {
	c, err := net.FileConn(os.NewFile(3, "passed"))
	must(err)
	rounds(c, 100, 64)
	fmt.Println("100 rounds")
}

func client() {
	for _, s := range []struct {
		name string
		run  func() string
	}{
		{"echo", echo},
		{"bulk", func() string { return bulk('e') }},
		{"copy", func() string { return bulk('c') }},
		{"half", half}, {"file", file}, {"deadline", deadline}, {"many", many},
		{"collecting", collecting}, {"signals", signals}, {"profile", profile},
		{"threads", threads}, {"children", children},
		{"namespaces", namespaces}, {"passed", passed},
	} {
		fmt.Printf("%s: %s\n", s.name, s.run())
	}
	dial('q').Close()
}

// Both ends in one process, and its end.
func alone() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go func() {
		c, err := l.Accept()
		must(err)
		io.Copy(struct{ io.Writer }{c}, c)
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	must(err)
	var n [8]byte
	for i := uint64(0); i < 40; i++ {
		binary.LittleEndian.PutUint64(n[:], i)
		_, err = c.Write(n[:])
		must(err)
		_, err = io.ReadFull(c, n[:])
		must(err)
		if binary.LittleEndian.Uint64(n[:]) != i {
			must(errors.New("other bytes came back"))
		}
	}
	fmt.Println("40 rounds alone")
	os.Exit(3)
}

func main() {
	switch os.Args[1] {
	case "server":
		server(os.Args[2])
	case "client":
		port = os.Args[2]
		client()
	case "alone":
		alone()
	case "child":
		child()
	case "print":
		fmt.Println(os.Args[2])
	}
}
