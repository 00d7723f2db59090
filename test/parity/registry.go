package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"podd/test/e2e/testnode"
)

// serveImages serves busybox on loopback until the process ends and returns the
// address:
//
//	ok/app:1      can be pulled, and so can ok/v1:1 to ok/v5:1, for those who must be the first to pull
//	ok/none:1     is not there
//	e401/…, e403/…, e429/…, e500/…   answer so
//
// and, for hooks, hangs up at /late.
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
	image, err := testnode.ReadImage(dir, filepath.Join(images, "busybox.tar"))
	if err != nil {
		return "", fmt.Errorf("read the image to serve: %w", err)
	}
	for _, repository := range []string{"app", "v1", "v2", "v3", "v4", "v5"} {
		if err := push(image, address+"/ok/"+repository+":1", repository); err != nil {
			return "", err
		}
	}
	return address, nil
}

// push makes an image of an ID of its own: the kubelet distrusts one that it has
// pulled, under whatever name, in every pod that does not bring credentials for it.
func push(image v1.Image, as, label string) error {
	image, err := mutate.Config(image, v1.Config{Labels: map[string]string{"parity": label}})
	if err != nil {
		return fmt.Errorf("make the image to serve: %w", err)
	}
	ref, err := name.ParseReference(as, name.Insecure)
	if err != nil {
		return err
	}
	return remote.Write(ref, image)
}

// hangUp ends a connection without an answer, late enough that whoever asks for
// the sake of a container has it running by then.
func hangUp(http.ResponseWriter, *http.Request) {
	time.Sleep(2 * time.Second)
	panic(http.ErrAbortHandler)
}

func refuse(next http.Handler) http.Handler {
	codes := map[string]int{"e401": 401, "e403": 403, "e429": 429, "e500": 500}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			hangUp(w, r)
		}
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
