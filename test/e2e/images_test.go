package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"podd/test/e2e/testnode"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// busybox is the bundle's image of that name with a label that gives it a
// digest of its own.
func busybox(t *testing.T, label string) v1.Image {
	t.Helper()
	image, err := testnode.ReadImage(t.TempDir(), filepath.Join(nodes.bundle.Images, "busybox.tar"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Config.Labels = map[string]string{"test": label}
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// registryOf serves images by name ("app:1") on loopback and returns its
// host:port. wrap may be nil.
func (e *env) registryOf(images map[string]v1.Image, wrap func(http.Handler) http.Handler) string {
	e.Helper()
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if wrap == nil {
		wrap = func(h http.Handler) http.Handler { return h }
	}
	// Pushes go past the wrapper.
	push := httptest.NewServer(handler)
	defer push.Close()
	for tag, image := range images {
		repo, version, _ := strings.Cut(tag, ":")
		if err := testnode.Push(push.URL+"/v2/"+repo, version, image); err != nil {
			e.Fatal(err)
		}
	}
	server := httptest.NewServer(wrap(handler))
	e.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// forget removes an image from the runtime when the test is over.
func (e *env) forget(image string) {
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := e.node.CRI.Images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: image}}); err != nil {
			e.Error(err)
		}
	})
}

// withImage replaces the image of a manifest.
func withImage(manifest, image string) string {
	for line := range strings.Lines(manifest) {
		if strings.HasPrefix(line, "    image: ") {
			return replaced(nil, manifest, line, "    image: "+image+"\n")
		}
	}
	panic("no image in " + manifest)
}

func TestAnImageIsPulledFromARegistry(t *testing.T) {
	e := begin(t)
	host := e.registryOf(map[string]v1.Image{"shop/app:1": busybox(t, "pulled")}, nil)
	image := host + "/shop/app:1"
	e.forget(image)
	e.write("pulled.yaml", withImage(e.podOf("pulled", ": > /out/pulled; ${REST}"), image))
	e.mark("pulled")
	p := e.ready("pulled")
	if id := p.Status.ContainerStatuses[0].ImageID; !strings.Contains(id, "sha256:") {
		t.Errorf("got image ID %q, want a digest", id)
	}
	e.event("pulled", "Pulled", image)
}

// TestAnImageThatDoesNotExistIsNamed and keeps nobody else from starting; once
// the registry has it, the pod runs.
func TestAnImageThatDoesNotExistIsNamed(t *testing.T) {
	e := begin(t)
	host := e.registryOf(nil, nil)
	image := host + "/shop/nowhere:1"
	e.write("nowhere.yaml", withImage(e.resting("nowhere"), image))
	p := e.waiting("nowhere", "ErrImagePull", "ImagePullBackOff")
	if got := p.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(got, image) {
		t.Errorf("got message %q, want the image in it", got)
	}
	if p.Status.Phase != corev1.PodPending {
		t.Errorf("got phase %s, want Pending", p.Status.Phase)
	}
	e.waiting("nowhere", "ImagePullBackOff")
	e.write("other.yaml", e.resting("other"))
	e.ready("other")
}

// TestAnImageThatMayNotBePulledIsNamed: imagePullPolicy Never.
func TestAnImageThatMayNotBePulledIsNamed(t *testing.T) {
	e := begin(t)
	text := withImage(e.resting("never"), "localhost/nowhere:1\n    imagePullPolicy: Never")
	e.write("never.yaml", text)
	p := e.waiting("never", "ErrImageNeverPull")
	if got := p.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(got, "localhost/nowhere:1") {
		t.Errorf("got message %q, want the image in it", got)
	}
}

// TestASlowRegistryHoldsUpNoOtherPod: pulls go side by side, and a registry
// that never answers blocks only who needs it (kubernetes/kubernetes#108405).
func TestASlowRegistryHoldsUpNoOtherPod(t *testing.T) {
	e := begin(t)
	release := make(chan struct{})
	var asked atomic.Int32
	slow := e.registryOf(map[string]v1.Image{"app:1": busybox(t, "slow")}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			select {
			case <-release:
			case <-r.Context().Done():
			}
			h.ServeHTTP(w, r)
		})
	})
	fast := e.registryOf(map[string]v1.Image{"app:1": busybox(t, "fast")}, nil)
	e.forget(fast + "/app:1")
	rest := "${REST}"
	e.write("slow.yaml", withImage(e.podOf("slow", ": > /out/slow; "+rest), slow+"/app:1"))
	e.eventually("the slow registry is asked", func(context.Context) error {
		if asked.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	e.write("fast.yaml", withImage(e.podOf("fast", ": > /out/fast; "+rest), fast+"/app:1"))
	e.write("local.yaml", e.resting("local"))
	e.mark("fast", "local") // while the slow one hangs, which it does until the test lets it go
	e.ready("fast")
	e.ready("local")
	if e.marked("slow") {
		t.Error("the slow pod runs without its image")
	}
	e.forget(slow + "/app:1")
	close(release)
	e.mark("slow")
}

// TestAnImageArchiveDroppedIntoTheDirectoryIsImported while podd runs, and the
// pod that waits for it starts.
func TestAnImageArchiveDroppedIntoTheDirectoryIsImported(t *testing.T) {
	e := begin(t)
	const image = "localhost/dropped/app:1"
	e.write("dropped.yaml", withImage(e.podOf("dropped", ": > /out/dropped; ${REST}"), image+"\n    imagePullPolicy: Never"))
	e.waiting("dropped", "ErrImageNeverPull")
	e.forget(image)
	ref, err := name.NewTag(image)
	if err != nil {
		t.Fatal(err)
	}
	partial := filepath.Join(e.podd.Dir, "app.tar")
	if err := tarball.WriteToFile(partial, ref, busybox(t, "dropped")); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(e.podd.Images(), "app.tar")
	defer func() { _ = os.Remove(archive) }()
	if err := os.Rename(partial, archive); err != nil {
		t.Fatal(err)
	}
	e.mark("dropped")
	e.ready("dropped")
}

// TestAnArchiveThatIsNoneIsNamed and hurts nothing.
func TestAnArchiveThatIsNoneIsNamed(t *testing.T) {
	e := begin(t)
	archive := filepath.Join(e.podd.Images(), "broken.tar")
	defer func() { _ = os.Remove(archive) }()
	if err := os.WriteFile(archive, []byte("no archive at all"), 0o644); err != nil {
		t.Fatal(err)
	}
	e.eventually("podd's log names the archive", func(context.Context) error {
		if log := e.podd.LogTail(1 << 20); !strings.Contains(log, "broken.tar") {
			return errors.New(log[max(0, len(log)-300):])
		}
		return nil
	})
	e.write("one.yaml", e.resting("one"))
	e.ready("one")
}

// TestAnImageThatASecretPulledIsNotUsedWithoutIt, although it is on the node: not while podd
// runs, nor after it was killed; whoever has the same credentials in a Secret of another
// name uses it without a pull (KEP-2535).
func TestAnImageThatASecretPulledIsNotUsedWithoutIt(t *testing.T) {
	e := begin(t)
	var refused atomic.Int32
	var pulls atomic.Int32
	host := e.registryOf(map[string]v1.Image{"private/app:1": busybox(t, "private")}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, _ := r.BasicAuth(); user != "owner" || password != "right" {
				refused.Add(1)
				w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			if strings.Contains(r.URL.Path, "/manifests/") {
				pulls.Add(1)
			}
			h.ServeHTTP(w, r)
		})
	})
	image := host + "/private/app:1"
	e.forget(image)
	withSecret := func(pod, secret, password string) string {
		config := fmt.Sprintf(`{"auths": {%q: {"username": "owner", "password": %q}}}`, host, password)
		return "apiVersion: v1\nkind: Secret\nmetadata: {name: " + secret + "}\ntype: kubernetes.io/dockerconfigjson\nstringData:\n  .dockerconfigjson: '" + config + "'\n---\n" +
			withImage(e.podOf(pod, ": > /out/"+pod+"; ${REST}", "imagePullSecrets: [{name: "+secret+"}]"), image)
	}
	e.write("owner.yaml", withSecret("owner", "registry", "right"))
	e.mark("owner")
	e.write("thief.yaml", withImage(e.podOf("thief", ": > /out/thief; ${REST}"), image))
	e.write("never.yaml", withImage(e.podOf("never", ": > /out/never; ${REST}"), image+"\n    imagePullPolicy: Never"))
	e.write("guess.yaml", withSecret("guess", "guessed", "wrong"))
	noneOfThese := func(when string) {
		t.Helper()
		e.waiting("thief", "ErrImagePull", "ImagePullBackOff")
		e.waiting("guess", "ErrImagePull", "ImagePullBackOff")
		p := e.waiting("never", "ErrImageNeverPull")
		if got := p.Status.ContainerStatuses[0].State.Waiting.Message; got != fmt.Sprintf("Container image %q is not present with pull policy of Never", image) {
			t.Errorf("%s: got message %q, which must not tell that the image is there", when, got)
		}
		for _, name := range []string{"thief", "guess", "never"} {
			if e.marked(name) {
				t.Errorf("%s: %s runs with an image that another pod's Secret has pulled", when, name)
			}
		}
	}
	noneOfThese("at first")
	if refused.Load() == 0 {
		t.Error("the registry was not asked for those without its password")
	}
	before := pulls.Load()
	e.write("friend.yaml", withSecret("friend", "by-another-name", "right"))
	e.mark("friend")
	if after := pulls.Load(); after != before {
		t.Errorf("the registry was asked %d times for an image that is there and whose password the pod has", after-before)
	}
	e.kill()
	e.start()
	noneOfThese("after a restart of podd")
}

// TestTheSandboxImageComesBackFromItsArchive: it may be removed by hand, as by crictl rmi --prune, and
// no registry has it.
func TestTheSandboxImageComesBackFromItsArchive(t *testing.T) {
	e := prepare(t)
	archive := filepath.Join(e.podd.Images(), "pause.tar")
	text, err := os.ReadFile(filepath.Join(nodes.bundle.Images, "pause.tar"))
	if err == nil {
		err = os.WriteFile(archive, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(archive) }()
	e.start()
	e.write("before.yaml", e.resting("before"))
	e.ready("before")
	if _, err := e.node.CRI.Images.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: testnode.ImagePause}}); err != nil {
		t.Fatal(err)
	}
	e.write("after.yaml", e.resting("after"))
	e.ready("after")
}
