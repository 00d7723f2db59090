package kubeadm

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"podd/test/cluster/registry"
)

// mirror serves images in the machine, and has its runtime pull upstream's there.
func (m *machine) mirror(images http.Handler) {
	m.Helper()
	listener := m.listen("127.0.0.1:0")
	server := &http.Server{Handler: images}
	go func() { _ = server.Serve(listener) }()
	m.Cleanup(func() { _ = server.Close() })
	if err := registry.Mirror(fmt.Sprintf("/proc/%d/root/etc/podd", m.init.Process.Pid), listener.Addr().String()); err != nil {
		m.Fatal(err)
	}
}

// listen listens in the machine's network.
func (m *machine) listen(address string) (l net.Listener) {
	m.Helper()
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread is of that network, and ends with this
		var of *os.File
		if of, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", m.init.Process.Pid)); err != nil {
			return
		}
		defer of.Close()
		if err = unix.Setns(int(of.Fd()), unix.CLONE_NEWNET); err == nil {
			l, err = net.Listen("tcp", address)
		}
	}()
	<-done
	if err != nil {
		m.Fatalf("listen on %s of %s: %v", address, m.name, err)
	}
	return l
}
