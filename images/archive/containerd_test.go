package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/bundle"
	"podd/images/archive"
)

// aContainerd starts the bundled containerd in directories of the test.
func aContainerd(t *testing.T) (socket string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containerd needs root")
	}
	bin := os.Getenv(bundle.EnvDir)
	if bin == "" {
		bin, _ = filepath.Abs("../../build/runtime/bin")
	}
	if _, err := bundle.Find(bin); err != nil {
		t.Skip("needs the bundle: make runtime")
	}
	dir, err := os.MkdirTemp("", "podd-images-") // shorter than t.TempDir, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	s := &bundle.Settings{
		BinDir: bin, RootDir: dir + "/root", StateDir: dir + "/state", CNIConfDir: dir + "/net.d",
		SandboxImage: bundle.PauseImage, LogLevel: "warn",
	}
	config, _, err := s.WriteConfig()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(filepath.Join(bin, "containerd"), "--config", config)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("containerd said:\n%s", &log)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket = bundle.Socket(s.StateDir)
	for limit := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := bundle.ListenerPID(socket); err == nil {
			return socket
		} else if time.Now().After(limit) {
			t.Fatalf("containerd does not listen: %v", err)
		}
	}
}

// anImage returns an image with one file, for the architecture.
func anImage(t *testing.T, arch string) v1.Image {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: "hello", Mode: 0o644, Size: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(layer.Bytes(), types.DockerUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", arch
	if img, err = mutate.ConfigFile(img, cf); err != nil {
		t.Fatal(err)
	}
	return img
}

// dockerArchive returns what docker save writes.
func dockerArchive(t *testing.T, ref, arch string) []byte {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := tarball.Write(tag, anImage(t, arch), &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// ociArchive returns an OCI layout in a tar whose image is named by ref alone,
// as skopeo and buildah write it.
func ociArchive(t *testing.T, ref string) []byte {
	t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(anImage(t, runtime.GOARCH), types.OCIManifestSchema1), types.OCIConfigJSON)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: img, Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": ref}},
	})
	dir := t.TempDir()
	if _, err := layout.Write(dir, index); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func save(t *testing.T, file string, data []byte, compress func(io.Writer) io.WriteCloser) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), file)
	var out bytes.Buffer
	w := compress(&out)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }

func TestImportIntoContainerd(t *testing.T) {
	socket := aContainerd(t)
	c, err := archive.DialContainerd(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	asIs := func(w io.Writer) io.WriteCloser { return plain{w} }
	zip := func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
	zst := func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z }

	short, err := reference.ParseDockerRef("busybox:1") // by the grammar of references
	if err != nil {
		t.Fatal(err)
	}
	good := map[string]string{
		save(t, "a.tar", dockerArchive(t, "registry.test/plain:1", runtime.GOARCH), asIs):   "registry.test/plain:1",
		save(t, "b.tar.gz", dockerArchive(t, "registry.test/gzip:1", runtime.GOARCH), zip):  "registry.test/gzip:1",
		save(t, "c.tar.zst", dockerArchive(t, "registry.test/zstd:1", runtime.GOARCH), zst): "registry.test/zstd:1",
		save(t, "d.tar", ociArchive(t, "busybox:1"), asIs):                                  short.String(),
		save(t, "e.tar", ociArchive(t, "registry.test/oci:1"), asIs):                        "registry.test/oci:1",
	}
	if oci, err := filepath.Abs("../../build/images/pause.tar"); err == nil {
		good[oci] = bundle.PauseImage
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cri := runtimeapi.NewImageServiceClient(conn)
	for file, ref := range good {
		refs, err := c.Import(t.Context(), file)
		if err != nil || len(refs) != 1 || refs[0] != ref {
			t.Errorf("%s: got %v, %v, want %s", filepath.Base(file), refs, err, ref)
			continue
		}
		// containerd's CRI plugin learns of the image through an event, a moment later.
		if image := await(t, cri, ref); image == nil || !image.Pinned {
			t.Errorf("%s: CRI reports %v, want it pinned", ref, image)
		}
	}

	whole := dockerArchive(t, "registry.test/x:1", runtime.GOARCH)
	for what, c2 := range map[string]struct {
		file string
		want string
	}{
		"empty":             {save(t, "empty.tar", nil, asIs), "empty.tar: "},
		"no archive":        {save(t, "text.tar", []byte(strings.Repeat("no tar ", 500)), asIs), "not a complete OCI or docker archive"},
		"cut off":           {save(t, "cut.tar", whole[:len(whole)/2], asIs), "save the image again"},
		"another machine's": {save(t, "arch.tar", dockerArchive(t, "registry.test/s390:1", "s390x"), asIs), "for linux/" + runtime.GOARCH},
		"a bare tag":        {save(t, "tag.tar", ociArchive(t, "latest"), asIs), "by its full name"},
		"missing":           {"/nonexistent.tar", "cannot be read"},
	} {
		_, err := c.Import(t.Context(), c2.file)
		if _, bad := errors.AsType[*archive.InvalidError](err); !bad || !strings.Contains(err.Error(), c2.want) {
			t.Errorf("%s: got %v, want an InvalidError with %q", what, err, c2.want)
		}
	}
}

func TestImportOfALargeArchiveIsStreamed(t *testing.T) {
	socket := aContainerd(t)
	c, err := archive.DialContainerd(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var layer, out bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: "zeros", Mode: 0o644, Size: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 64<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(anImage(t, runtime.GOARCH), static.NewLayer(layer.Bytes(), types.DockerUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("registry.test/large:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.Write(tag, img, &out); err != nil {
		t.Fatal(err)
	}
	file := save(t, "large.tar", out.Bytes(), func(w io.Writer) io.WriteCloser { return plain{w} })

	began := time.Now()
	if refs, err := c.Import(t.Context(), file); err != nil || len(refs) != 1 {
		t.Fatalf("got %v, %v", refs, err)
	}
	t.Logf("64 MB in %v", time.Since(began).Round(time.Millisecond))

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = c.Import(ctx, file)
	if _, bad := errors.AsType[*archive.InvalidError](err); err == nil || bad {
		t.Errorf("interrupted: got %v, want an error that does not blame the file", err)
	}
}

func TestImportWithoutContainerdBlamesTheMoment(t *testing.T) {
	c, err := archive.DialContainerd(filepath.Join(t.TempDir(), "none.sock"))
	if err != nil {
		return // rejected at once, which is as good
	}
	defer c.Close()
	file := save(t, "a.tar", dockerArchive(t, "registry.test/plain:1", runtime.GOARCH), func(w io.Writer) io.WriteCloser { return plain{w} })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = c.Import(ctx, file)
	if _, bad := errors.AsType[*archive.InvalidError](err); err == nil || bad {
		t.Errorf("got %v, want an error that does not blame the file", err)
	}
}

func await(t *testing.T, cri runtimeapi.ImageServiceClient, ref string) *runtimeapi.Image {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r, err := cri.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		if err != nil {
			t.Fatal(err)
		}
		if (r.Image != nil && r.Image.Pinned) || time.Now().After(limit) {
			return r.Image
		}
	}
}
