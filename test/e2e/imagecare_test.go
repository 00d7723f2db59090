package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// guarded wants one user's password.
func guarded(user, password string) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
}

// ownLayer adds a layer to busybox that no other image has, so that a pull has
// something to fetch; id is its digest.
func ownLayer(t *testing.T, label string) (image v1.Image, id string) {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	text := bytes.Repeat([]byte(label), 1000)
	headErr := w.WriteHeader(&tar.Header{Name: "own-" + label, Mode: 0o644, Size: int64(len(text))})
	_, textErr := w.Write(text)
	if err := errors.Join(headErr, textErr, w.Close()); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	image, err = mutate.AppendLayers(busybox(t, label), layer)
	if err != nil {
		t.Fatal(err)
	}
	return image, digest.String()
}

// forLayer has one layer answered in another way.
func forLayer(id string, answer func(w http.ResponseWriter, r *http.Request, h http.Handler)) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, id) && r.Method == http.MethodGet {
				answer(w, r, h)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
}

// failing answers everything in one way.
func failing(status int, header ...string) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
		})
	}
}

// TestCredentialsOfTheNodesDockerConfigurationAreUsed, also when they
// appear while podd runs; podd retry ends the wait that is due by then.
func TestCredentialsOfTheNodesDockerConfigurationAreUsed(t *testing.T) {
	e := begin(t)
	host := e.registryOf(map[string]v1.Image{"shop/app:1": busybox(t, "guarded")}, guarded("me", "secret word"))
	image := host + "/shop/app:1"
	e.forget(image)
	e.write("guarded.yaml", withImage(e.podOf("guarded", ": > /out/guarded; ${REST}"), image))
	p := e.waiting("guarded", "ImagePullBackOff")
	if got := p.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(got, "the registry requires credentials") {
		t.Errorf("message: got %q, want it to say what is missing", got)
	}
	file := filepath.Join(e.node.Root(), "config.json")
	e.Cleanup(func() { _ = os.Remove(file) })
	text := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, base64.StdEncoding.EncodeToString([]byte("me:secret word")))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	e.run("retry", "guarded")
	e.atMost("a pull after podd retry, which waits for no back-off,", e.mark("guarded").Sub(at), 25)
	if log := e.podd.LogTail(1 << 20); strings.Contains(log, "secret word") {
		t.Error("the password is in the log")
	}
}

// TestACredentialProviderPluginIsAsked for the images that it is for.
func TestACredentialProviderPluginIsAsked(t *testing.T) {
	e := prepare(t)
	host := e.registryOf(map[string]v1.Image{"shop/app:1": busybox(t, "plugin")}, guarded("robot", "token"))
	dir := filepath.Join(e.podd.Dir, "plugins")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`#!/bin/sh
cat >%s/asked
cat <<'END'
{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": "Registry",
 "auth": {%q: {"username": "robot", "password": "token"}}}
END
`, dir, host)
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: robot
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: [%q]
  defaultCacheDuration: 10m
`, host)
	for file, text := range map[string]string{"robot": script, "config.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	e.podd.Args = append(e.podd.Args, "--image-credential-provider-config", dir+"/config.yaml", "--image-credential-provider-bin-dir", dir)
	e.start()
	image := host + "/shop/app:1"
	e.forget(image)
	e.write("plugin.yaml", withImage(e.podOf("plugin", ": > /out/plugin; ${REST}"), image))
	e.mark("plugin")
	if asked, _ := os.ReadFile(dir + "/asked"); !strings.Contains(string(asked), host+`/shop/app"`) {
		t.Errorf("the plugin was asked %q", asked)
	}
	e.counted(`kubelet_credential_provider_plugin_duration_count{plugin_name="robot"} `)
}

// TestEachFaultOfARegistryIsToldAndHoldsUpNobody: one pod for each kind of
// fault, and one whose image is in order; podd's log stays short.
func TestEachFaultOfARegistryIsToldAndHoldsUpNobody(t *testing.T) {
	e := begin(t)
	app := map[string]v1.Image{"app:1": busybox(t, "faults")}
	wrong, id := ownLayer(t, "wrong")
	faults := map[string]struct {
		wrap func(http.Handler) http.Handler
		want string
	}{
		"unauthorized": {guarded("x", "y"), "the registry requires credentials"},
		"forbidden":    {failing(http.StatusForbidden), "these credentials may not pull"},
		"toomany":      {failing(http.StatusTooManyRequests, "Retry-After", "120"), "pull rate limit was reached"},
		"broken":       {failing(http.StatusInternalServerError), "the registry failed or is overloaded"},
		"missing":      {failing(http.StatusNotFound), "has no such image"},
		"loud": {func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write(bytes.Repeat([]byte("a word "), 150_000))
			})
		}, ""},
		"wrong": {forLayer(id, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = w.Write([]byte(strings.Repeat("not what was announced ", 1000)))
		}), "does not match its manifest"},
	}
	for name, fault := range faults {
		serves := app
		if name == "wrong" {
			serves = map[string]v1.Image{"app:1": wrong}
		}
		host := e.registryOf(serves, fault.wrap)
		e.write(name+".yaml", withImage(e.resting(name), host+"/app:1"))
	}
	nowhere := "registry.invalid/app:1" // resolves nowhere, by RFC 6761
	e.write("nowhere.yaml", withImage(e.resting("nowhere"), nowhere))
	good := e.registryOf(app, nil)
	e.forget(good + "/app:1")
	at := time.Now()
	e.write("good.yaml", withImage(e.podOf("good", ": > /out/good; ${REST}"), good+"/app:1"))
	e.atMost(fmt.Sprintf("beside %d broken registries, a pull", len(faults)+1), e.mark("good").Sub(at), 35)
	said := func(name string) string {
		p := e.waiting(name, "ErrImagePull", "ImagePullBackOff")
		return p.Status.ContainerStatuses[0].State.Waiting.Message
	}
	for name, fault := range faults {
		if got := said(name); !strings.Contains(got, fault.want) || len(got) > 4<<10 {
			t.Errorf("%s: got %d bytes, %.4000q, want %q in it", name, len(got), got, fault.want)
		}
	}
	if got := said("nowhere"); !strings.Contains(got, "could not be resolved") && !strings.Contains(got, "could not be reached") {
		t.Errorf("nowhere: got %q", got)
	}
	if log := e.podd.LogTail(1 << 20); len(log) > 100<<10 {
		t.Errorf("podd wrote %d bytes", len(log))
	}
}

// TestHalfALayerIsPulledAgain: the connection breaks off in the middle, and the
// pod runs once it does not.
func TestHalfALayerIsPulledAgain(t *testing.T) {
	e := begin(t)
	var broken atomic.Bool
	broken.Store(true)
	half, id := ownLayer(t, "half")
	host := e.registryOf(map[string]v1.Image{"app:1": half}, forLayer(id, func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if broken.Load() {
			w.Header().Set("Content-Length", "300")
			_, _ = w.Write(make([]byte, 100))
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	}))
	e.forget(host + "/app:1")
	e.write("half.yaml", withImage(e.podOf("half", ": > /out/half; ${REST}"), host+"/app:1"))
	e.waiting("half", "ErrImagePull", "ImagePullBackOff")
	broken.Store(false)
	e.mark("half")
}

// TestALayerThatNeverEndsGoesWithItsPod: it is given up when nobody wants it
// any more, and delays nobody.
func TestALayerThatNeverEndsGoesWithItsPod(t *testing.T) {
	e := begin(t)
	var open atomic.Int32
	endless, id := ownLayer(t, "endless")
	layers, err := endless.Layers()
	if err != nil {
		t.Fatal(err)
	}
	size, err := layers[len(layers)-1].Size()
	if err != nil {
		t.Fatal(err)
	}
	host := e.registryOf(map[string]v1.Image{"app:1": endless}, forLayer(id, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		open.Add(1)
		defer open.Add(-1)
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		for range size - 1 { // a byte in a while, and never the last one
			if _, err := w.Write([]byte{0}); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(200 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
		<-r.Context().Done()
	}))
	e.write("endless.yaml", withImage(e.resting("endless"), host+"/app:1"))
	e.eventually("a layer is on its way", func(context.Context) error {
		if open.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	e.write("other.yaml", e.resting("other"))
	e.ready("other")
	e.waitPod("endless", "its message says how far the pull is", func(p *corev1.Pod) error {
		if w := firstContainer(p).State.Waiting; w == nil || !strings.Contains(w.Message, "Pulling image") || !strings.Contains(w.Message, " B of ") {
			return fmt.Errorf("waiting: %+v", w)
		}
		return nil
	})
	e.remove("endless.yaml")
	e.eventually("the pull is given up", func(context.Context) error {
		if n := open.Load(); n > 0 {
			return fmt.Errorf("%d layers are still being read", n)
		}
		return nil
	})
}

// TestAlwaysAsksTheRegistryAgain: a tag that moved is pulled anew for the next
// container, and a registry that is down is an error although the image is here.
func TestAlwaysAsksTheRegistryAgain(t *testing.T) {
	e := begin(t)
	var asked atomic.Int32
	var down atomic.Bool
	host := e.registryOf(map[string]v1.Image{"app:1": busybox(t, "always")}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			if strings.Contains(r.URL.Path, "/manifests/1") {
				asked.Add(1)
			}
			h.ServeHTTP(w, r)
		})
	})
	image := host + "/app:1"
	e.forget(image)
	always := func(name string) string {
		return withImage(e.podOf(name, ": > /out/"+name+"; ${REST}"), image+"\n    imagePullPolicy: Always")
	}
	e.write("first.yaml", always("first"))
	e.mark("first")
	before := asked.Load()
	e.write("second.yaml", always("second"))
	e.mark("second")
	if asked.Load() == before {
		t.Error("the second container's image was not asked for")
	}
	down.Store(true)
	e.write("third.yaml", always("third"))
	e.waiting("third", "ErrImagePull", "ImagePullBackOff")
	e.write("fourth.yaml", withImage(e.podOf("fourth", ": > /out/fourth; ${REST}"), image+"\n    imagePullPolicy: IfNotPresent"))
	e.mark("fourth")
}

// TestImagesNobodyUsesGoWhenTheDiskIsFull, with a threshold that any disk is
// above; those of pods and of manifests stay, and who has the space is said.
func TestImagesNobodyUsesGoWhenTheDiskIsFull(t *testing.T) {
	e := prepare(t)
	host := e.registryOf(map[string]v1.Image{
		"unused:1": busybox(t, "unused"), "used:1": busybox(t, "used"), "named:1": busybox(t, "named"),
	}, nil)
	for _, name := range []string{"unused", "used", "named"} {
		image := host + "/" + name + ":1"
		if _, err := e.node.CRI.Images.PullImage(e.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image}}); err != nil {
			t.Fatal(err)
		}
		e.forget(image)
	}
	e.Cleanup(func() { // the node's own images are used by nobody either
		if err := e.node.Containerd.ImportAll(context.Background()); err != nil {
			t.Error(err)
		}
	})
	e.podd.Config["imageGCHighThresholdPercent"] = 1
	e.podd.Config["imageGCLowThresholdPercent"] = 0
	e.podd.Config["imageMinimumGCAge"] = "2s"
	e.write("used.yaml", withImage(e.podOf("used", ": > /out/used; ${REST}"), host+"/used:1"))
	e.write("named.yaml", withImage(e.podOf("named", "${REST}", "nodeSelector: {there: none}"), host+"/named:1"))
	e.start()
	e.mark("used")
	images := func() string {
		r, err := e.node.CRI.Images.ListImages(e.Context(), &runtimeapi.ListImagesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, i := range r.Images {
			all = append(all, i.RepoTags...)
		}
		return strings.Join(all, " ")
	}
	e.eventually("the image that nobody uses is removed", func(context.Context) error {
		if got := images(); strings.Contains(got, "/unused:1") {
			return errors.New(got)
		}
		return nil
	})
	e.eventually("podd says who has the space", func(context.Context) error {
		if log := e.podd.LogTail(1 << 20); !strings.Contains(log, "Insufficient free disk space on the node's image filesystem") || !strings.Contains(log, "everything else on this disk") {
			return errors.New(log[max(0, len(log)-500):])
		}
		return nil
	})
	if got := images(); !strings.Contains(got, "/used:1") || !strings.Contains(got, "/named:1") {
		t.Errorf("got %s, want those in use and those that a manifest names", got)
	}
	e.counted(`kubelet_image_garbage_collected_total{reason="space"} `)
}

// counted waits for a metric of any value.
func (e *env) counted(prefix string) {
	e.Helper()
	e.eventually("wait for metric "+prefix, func(ctx context.Context) error {
		body, err := e.podd.Get(ctx, "/metrics")
		if err == nil && !strings.Contains(string(body), "\n"+prefix) {
			err = errors.New("it is not there")
		}
		return err
	})
}
