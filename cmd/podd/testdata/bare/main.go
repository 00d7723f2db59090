// Command bare is the control for podd's probes: a server that counts requests,
// and a client that makes the same requests at the same rate and does nothing
// else.
//
//	bare serve          prints its port; for each line of input it prints how
//	                    many requests /podd and /bare have had
//	bare ask PORT N     requests /bare N times per second until its input ends
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

func main() {
	switch os.Args[1] {
	case "serve":
		serve()
	case "ask":
		port := os.Args[2]
		n, err := strconv.Atoi(os.Args[3])
		if err != nil {
			panic(err)
		}
		ask("http://127.0.0.1:"+port+"/bare", n)
	}
}

func serve() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	var podd, bare atomic.Int64
	count := func(n *atomic.Int64) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			n.Add(1)
			fmt.Fprintln(w, "ok")
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/podd", count(&podd))
	mux.Handle("/bare", count(&bare))
	go func() { _ = http.Serve(l, mux) }()
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(podd.Load(), bare.Load())
	}
}

// ask spreads the requests over the second, and, like a probe, uses a new
// connection for each.
func ask(url string, n int) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	for i := range n {
		time.AfterFunc(time.Duration(i)*time.Second/time.Duration(n), func() {
			for range time.Tick(time.Second) {
				resp, err := client.Get(url)
				if err != nil {
					continue // it is not counted by the server either
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}
