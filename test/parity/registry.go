package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// serveImages serves busybox on loopback until the process ends and returns the
// address:
//
//	ok/app:1      can be pulled
//	ok/none:1     is not there
//	e401/…, e403/…, e429/…, e500/…   answer so
func serveImages(images string) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("serve images: %w", err)
	}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	go func() { _ = http.Serve(listener, refuse(handler)) }()
	address := listener.Addr().String()
	dir, err := os.MkdirTemp("", "podd-parity-image-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	image, err := loadImage(filepath.Join(images, "busybox.tar"), dir)
	if err != nil {
		return "", fmt.Errorf("read the image to serve: %w", err)
	}
	// An image of its own ID: the kubelet distrusts one that it has pulled, under
	// whatever name, in every pod that does not bring credentials for it.
	if image, err = mutate.Config(image, v1.Config{Labels: map[string]string{"parity": "pulled"}}); err != nil {
		return "", fmt.Errorf("make the image to serve: %w", err)
	}
	ref, err := name.ParseReference(address+"/ok/app:1", name.Insecure)
	if err != nil {
		return "", err
	}
	return address, remote.Write(ref, image)
}

// loadImage unpacks an OCI archive into dir, where the image's layers are read
// when they are pushed.
func loadImage(archive, dir string) (v1.Image, error) {
	if out, err := exec.Command("tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("unpack %s: %w: %s", archive, err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(list.Manifests) == 0 {
		return nil, fmt.Errorf("no image in %s", archive)
	}
	return index.Image(list.Manifests[0].Digest)
}

func refuse(next http.Handler) http.Handler {
	codes := map[string]int{"e401": 401, "e403": 403, "e429": 429, "e500": 500}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for part, code := range codes {
			if strings.HasPrefix(r.URL.Path, "/v2/"+part+"/") {
				if code == 401 {
					w.Header().Set("WWW-Authenticate", `Basic realm="parity"`)
				}
				http.Error(w, http.StatusText(code), code)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
