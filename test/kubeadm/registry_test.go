package kubeadm

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"podd/test/cluster/registry"
	"podd/test/cluster/suiteimages"
	"podd/test/e2e/testnode"
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

// registryOf is a registry with the images of upstream's tests that some of these tests pull, out
// of the archive that the nodes import. It answers that other images do not exist.
func registryOf(t testing.TB, archive string) http.Handler {
	t.Helper()
	images, dir := map[string]v1.Image{}, t.TempDir()
	for _, name := range suiteimages.Pulled {
		image, err := testnode.ReadNamed(dir, archive, name)
		if err != nil {
			t.Fatal(err)
		}
		images[strings.TrimPrefix(name, registry.Host+"/")] = image
	}
	served, err := registry.New(images)
	if err != nil {
		t.Fatal(err)
	}
	return served
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
