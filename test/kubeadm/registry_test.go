package kubeadm

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"podd/test/e2e/testnode"
)

const (
	upstreamRegistry = "registry.k8s.io"
	// kittenImage is the one image that upstream's tests pull whatever the node has.
	kittenImage = "e2e-test-images/kitten:1.8"
)

// kittenFiles are what they read of it.
var kittenFiles = map[string]string{
	"data.json":      `{"image": "kitten.jpg"}` + "\n",
	"etc/os-release": `NAME="Alpine Linux"` + "\n",
}

// upstreamImages is a registry that has what upstream's tests pull.
func upstreamImages(t *testing.T) http.Handler {
	t.Helper()
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	push := httptest.NewServer(handler)
	defer push.Close()
	image, err := imageOf(kittenFiles)
	if err == nil {
		repository, tag, _ := strings.Cut(kittenImage, ":")
		err = testnode.Push(push.URL+"/v2/"+repository, tag, image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func imageOf(files map[string]string) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for file, text := range files {
		if dir := path.Dir(file); dir != "." {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
				return nil, err
			}
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, l)
}

// mirror serves images in the machine, and has its runtime pull upstream's there.
func (m *machine) mirror(images http.Handler) {
	m.Helper()
	listener := m.listen("127.0.0.1:0")
	server := &http.Server{Handler: images}
	go func() { _ = server.Serve(listener) }()
	m.Cleanup(func() { _ = server.Close() })
	dir := "/etc/podd/certs.d/" + upstreamRegistry
	hosts := fmt.Sprintf("server = %[1]q\n[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+listener.Addr().String())
	m.run("mkdir", "-p", dir)
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root%s/hosts.toml", m.init.Process.Pid, dir), []byte(hosts), 0o644); err != nil {
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
