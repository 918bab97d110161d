// goecho.go - for tests/bench/go.sh: `server PORT` echoes; `client PORT SIZE SECS CONNS` measures:
// microseconds per round on one connection of CONNS that are used at once, and rounds per second of
// all. The server ends with its first connection that says so, and prints microseconds of CPU per
// round.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func server(port string) {
	var rounds atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	must(err)
	begin := cpu()
	for {
		c, err := l.Accept()
		must(err)
		go func() {
			buf := make([]byte, 65536)
			for {
				n, err := c.Read(buf)
				if err != nil {
					c.Close()
					return
				}
				if n == 1 { // who measures begins, or ends
					if buf[0] == 'b' {
						begin = cpu()
						rounds.Store(0)
					} else {
						r := rounds.Load()
						used := float64(cpu()-begin) / 1000
						fmt.Printf("%.3f\n", used/float64(r))
						os.Exit(0)
					}
				}
				rounds.Add(1)
				_, err = c.Write(buf[:n])
				must(err)
			}
		}()
	}
}

func main() {
	port := os.Args[2]
	if os.Args[1] == "server" {
		server(port)
	}
	size, err := strconv.Atoi(os.Args[3])
	must(err)
	secs, err := strconv.ParseFloat(os.Args[4], 64)
	must(err)
	n, err := strconv.Atoi(os.Args[5])
	must(err)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		must(err)
		return c
	}
	round := func(c net.Conn, out, in []byte) {
		_, err := c.Write(out)
		must(err)
		_, err = io.ReadFull(c, in)
		must(err)
	}
	control := dial()
	one := make([]byte, 1)
	var all atomic.Int64
	var g sync.WaitGroup
	var took []float64
	var warm, over atomic.Bool
	for i := 0; i < n; i++ {
		g.Add(1)
		first := i == 0
		go func() {
			defer g.Done()
			c := dial()
			out, in := make([]byte, size), make([]byte, size)
			for !over.Load() {
				t := time.Now()
				round(c, out, in)
				if warm.Load() {
					all.Add(1)
					if first {
						took = append(took, float64(time.Since(t))/1000)
					}
				}
			}
			c.Close()
		}()
	}
	time.Sleep(300 * time.Millisecond)
	round(control, []byte("b"), one)
	warm.Store(true)
	time.Sleep(time.Duration(secs * float64(time.Second)))
	over.Store(true)
	g.Wait()
	sort.Float64s(took)
	fmt.Printf("%.3f %.0f\n", took[len(took)/2], float64(all.Load())/secs)
	control.Write([]byte("e"))
	io.ReadFull(control, one)
}
