// Command hostpathplugin is as much of the program of upstream's image hostpathplugin as the
// tests of dynamic resource allocation call: it joins each connection to a socket, a node
// agent's, to one that comes to a port, behind which is the test's own driver.
package main

import (
	"errors"
	"flag"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"strings"
)

func main() {
	endpoint := flag.String("endpoint", "", "the path of a socket")
	proxy := flag.String("proxy-endpoint", "", "tcp:// and an address")
	// Upstream's options for other purposes.
	flag.String("drivername", "", "not used")
	flag.Int("v", 0, "not used")
	flag.Parse()
	log.Fatal(join(*endpoint, *proxy))
}

func join(endpoint, proxy string) error {
	socket, err := listen(endpoint)
	if err != nil {
		return err
	}
	port, err := listen(proxy)
	if err != nil {
		return err
	}
	for {
		near, err := socket.Accept()
		if err != nil {
			return err
		}
		far, err := port.Accept() // it may have waited for this
		if err != nil {
			return err
		}
		go pass(near, far)
	}
}

// listen takes the path of a socket for an endpoint, too, and its place from one that was left.
func listen(endpoint string) (net.Listener, error) {
	network, address, ok := strings.Cut(endpoint, "://")
	if !ok {
		network, address = "unix", endpoint
	}
	if network == "unix" {
		if err := os.Remove(address); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return net.Listen(network, address)
}

// pass copies both ways until either end has nothing more to say.
func pass(a, b net.Conn) {
	ended := make(chan struct{}, 2)
	for _, c := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(c[0], c[1])
			ended <- struct{}{}
		}()
	}
	<-ended
	_, _ = a.Close(), b.Close()
}
