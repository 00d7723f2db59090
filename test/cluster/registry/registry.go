// Package registry serves the images that upstream's end-to-end tests pull whatever the node
// has: the nodes of a test's cluster have no way to registry.k8s.io. Each finds it as an
// operator would have it, by a hosts.toml of containerd's.
package registry

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"podd/test/e2e/testnode"
)

// Host is the registry that this one stands for.
const Host = "registry.k8s.io"

// kitten is made here: nodes do not have it beforehand.
const kitten = "e2e-test-images/kitten:1.8"

// kittenFiles are what the tests read of it.
var kittenFiles = map[string]string{
	"data.json":      `{"image": "kitten.jpg"}` + "\n",
	"etc/os-release": `NAME="Alpine Linux"` + "\n",
}

// New returns a registry with the image for image volumes and these, by their names without
// the host. Blobs are kept in memory.
func New(images map[string]v1.Image) (http.Handler, error) {
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(handler)
	defer server.Close()
	push := func(name string, image v1.Image) error {
		repository, tag, _ := strings.Cut(name, ":")
		return testnode.Push(server.URL+"/v2/"+repository, tag, image)
	}
	image, err := imageOf(kittenFiles)
	if err == nil {
		err = push(kitten, image)
	}
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", kitten, err)
	}
	for name, image := range images {
		if err := push(name, image); err != nil {
			return nil, fmt.Errorf("serve %s: %w", name, err)
		}
	}
	return handler, nil
}

// Mirror has a runtime pull images of Host from an address, host:port. configDir is the
// administrator's directory of the runtime, /etc/podd. What is pulled afterwards is from there.
func Mirror(configDir, address string) error {
	dir := filepath.Join(configDir, "certs.d", Host)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	hosts := fmt.Sprintf("server = %[1]q\n[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+address)
	return os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(hosts), 0o644)
}

// imageOf makes an image of one layer.
func imageOf(files map[string]string) (v1.Image, error) {
	var names []string
	for name := range files {
		names = append(names, name)
		if dir := path.Dir(name); dir != "." {
			names = append(names, dir+"/")
		}
	}
	slices.Sort(names)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, name := range names {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name]))}
		if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
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
