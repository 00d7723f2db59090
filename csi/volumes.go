package csi

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/pod"
)

// pluginName is upstream's, with which its errors begin.
const pluginName = "kubernetes.io/csi"

// patience is how long TearDown waits for a driver; its call goes on after that.
const patience = 10 * time.Second

// Objects has the API's objects that volumes are made with. The error for one that
// is not there is of the class pod.ErrNotFound; nobody may change what is returned.
// It must not block.
type Objects interface {
	CSIDriver(name string) (*storagev1.CSIDriver, error)
	Secret(namespace, name string) (*v1.Secret, error)
}

// Config is what Volumes are made of.
type Config struct {
	// RootDir is podd's --root-dir; it is made when missing.
	RootDir  string
	NodeName string
	Objects  Objects
	Waker    Waker
	Log      *slog.Logger
	Metrics  prometheus.Registerer
}

// Volumes are the node's CSI volumes. Make it with New; Run registers drivers.
type Volumes struct {
	root, nodeName, boot string
	objects              Objects
	waker                Waker
	registry             *registry
	log                  *slog.Logger
	metrics              *metrics
	turns                turns
	timeout, patience    time.Duration

	mu          sync.Mutex // guards what follows
	tearDowns   map[string]*tearDown
	republished map[string]*republished
}

// New makes the root directory and those of drivers if they are missing, as drivers' pods
// expect, and resolves it. It starts nothing.
func New(c Config) (*Volumes, error) {
	if err := os.MkdirAll(c.RootDir, 0o750); err != nil {
		return nil, fmt.Errorf("make the root directory: %w", err)
	}
	root, err := filepath.Abs(c.RootDir)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, fmt.Errorf("resolve the root directory: %w", err)
	}
	v := &Volumes{
		root: root, nodeName: c.NodeName, boot: bootID(), objects: c.Objects, waker: c.Waker, log: c.Log,
		metrics: newMetrics(c.Metrics), timeout: callTimeout, patience: patience,
		tearDowns: map[string]*tearDown{}, republished: map[string]*republished{},
	}
	for _, dir := range []string{"plugins_registry", "plugins"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o750); err != nil {
			return nil, fmt.Errorf("make the directory of CSI drivers: %w", err)
		}
	}
	v.registry = newRegistry(filepath.Join(root, "plugins_registry"), c.Waker, c.Log)
	return v, nil
}

// Run registers the drivers whose sockets appear in <root-dir>/plugins_registry, and
// unstages what nobody uses, until ctx ends, whose cause it returns.
func (v *Volumes) Run(ctx context.Context) error {
	var work sync.WaitGroup
	v.registry.registered = func(name string) {
		work.Go(func() { v.unstageUnused(ctx, name) })
	}
	defer v.stopRepublishing()
	v.registry.run(ctx)
	work.Wait()
	return context.Cause(ctx)
}

// Drivers are the names of those that are registered, sorted.
func (v *Volumes) Drivers() []string { return v.registry.names() }

// SetUp has a volume staged, if its driver does that, and published at the place
// that Path tells. It blocks as long as the driver takes, at most 2 minutes, and until ctx
// ends; then, and after an error, the driver may still be at it, which TearDown
// cares for. Calling it again is right after any outcome.
//
// podOwns says that the volume's files are to be given to the pod's fsGroup, which the
// driver does not do. Errors are in upstream's words, and show no value of a Secret.
// When a driver that is missing comes, the pod is told (Waker).
func (v *Volumes) SetUp(ctx context.Context, volume pod.CSIVolume) (podOwns bool, err error) {
	return v.setUp(ctx, volume, false)
}

// setUp is SetUp, or does it again for a volume that is set up, if it still is.
func (v *Volumes) setUp(ctx context.Context, volume pod.CSIVolume, again bool) (podOwns bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	p, err := v.plan(&volume)
	if err != nil {
		return false, fmt.Errorf("%s: %w", pluginName, err)
	}
	d, err := v.registry.driver(p.driver, volume.Pod.UID)
	if err != nil {
		if !again && p.isPublished(v.boot) {
			return false, nil // an earlier podd did it; the driver is not needed for that
		}
		return false, fmt.Errorf("%s: mounter.SetUpAt failed to get CSI client: %w", pluginName, err)
	}
	if err := p.getSecrets(v.objects); err != nil {
		return false, err
	}
	if p.otherIn() {
		if err := v.TearDown(ctx, volume.Dir); err != nil {
			return false, err
		}
	}
	unlock, err := v.turns.take(ctx, p.key())
	if err != nil {
		return false, fmt.Errorf("%s: another call for the volume does not end: %w", pluginName, err)
	}
	defer unlock()
	if again && !p.isSetUp() {
		return false, nil // it was torn down meanwhile
	}
	s, err := v.open(ctx, d)
	if err != nil {
		v.registry.wait(p.driver, volume.Pod.UID)
		return false, fmt.Errorf("%s: %w", pluginName, err)
	}
	defer s.close()
	p.settle(s.can)
	if err := v.make(ctx, s, p); err != nil {
		return false, fmt.Errorf("%s: %w", pluginName, err)
	}
	v.follow(volume, p)
	return p.podOwns(), nil
}

// make stages and publishes; the volume's turn is taken.
func (v *Volumes) make(ctx context.Context, s *session, p *plan) error {
	if err := p.begin(v.boot); err != nil {
		return err
	}
	if err := v.stage(ctx, s, p); err != nil {
		return err
	}
	if err := v.publish(ctx, s, p); err != nil {
		return err
	}
	return v.expand(ctx, s, p)
}

// Path is where SetUp has a volume published. It is pure.
func (v *Volumes) Path(volume pod.CSIVolume) string {
	return placesOf(v.root, volume.Dir, recordOf(&volume, "")).target
}
