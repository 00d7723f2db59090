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

	"podd/internal/keylock"
	"podd/internal/pod"
	"podd/internal/selinux"
	"podd/plugins/loop"
)

// pluginName is upstream's name of the plugin, the prefix of its errors.
const pluginName = "kubernetes.io/csi"

// tearDownWait is how long TearDown waits for a driver; the call continues after that.
const tearDownWait = 10 * time.Second

// Objects returns the CSIDrivers and Secrets of volumes; for a pod of an apiserver, they
// come from the apiserver. The error for a missing one is of class pod.ErrNotFound. The
// returned objects must not be modified. The calls may block until the apiserver has
// answered, or until ctx ends.
type Objects interface {
	CSIDriver(ctx context.Context, p *v1.Pod, name string) (*storagev1.CSIDriver, error)
	// KnownCSIDriver does not block: it fails while the apiserver has not answered.
	KnownCSIDriver(p *v1.Pod, name string) (*storagev1.CSIDriver, error)
	SecretOf(ctx context.Context, p *v1.Pod, namespace, name string) (*v1.Secret, error)
}

// Events records events of pods. It must not block.
type Events interface {
	Event(p *v1.Pod, eventType, reason, message string)
	ClaimEvent(claim *v1.PersistentVolumeClaim, eventType, reason, message string)
}

// Config configures Volumes.
type Config struct {
	// RootDir is podd's --root-dir; it is created if missing.
	RootDir  string
	NodeName string
	Objects  Objects
	Waker    Waker
	Events   Events
	Cluster  Cluster // NoCluster without one
	Plugins  Plugins
	// SELinux are the node's labels; nil on a node without SELinux.
	SELinux *selinux.Labels
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Volumes manages the node's CSI volumes. Create it with New. It handles the registry's plugins of
// type registration.CSIPlugin.
type Volumes struct {
	root, nodeName, boot  string
	objects               Objects
	waker                 Waker
	events                Events
	cluster               Cluster
	drivers               *drivers
	selinux               *selinux.Labels
	log                   *slog.Logger
	metrics               *metrics
	locks                 keylock.Locks[string] // by record.key
	timeout, tearDownWait time.Duration
	followPeriod          time.Duration // see follow
	loop                  *loop.Loop

	mu        sync.Mutex // guards what follows
	tearDowns map[string]*runningTearDown
	followed  map[string]*followedVolume
	// labelWaiting maps a volume's record.key to the pods that wait until no other pod uses the
	// volume with another SELinux label; nil until a pod waits.
	labelWaiting map[string]map[pod.UID]bool
	// inUse maps each attached volume to the directories that need it.
	inUse map[v1.UniqueVolumeName]map[string]bool
}

// New creates the root directory and the directory of drivers, which the drivers' pods
// expect to exist, and resolves the root. It starts nothing.
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
		root: root, nodeName: c.NodeName, boot: bootID(), objects: c.Objects, waker: c.Waker, events: c.Events, log: c.Log,
		selinux: c.SELinux, metrics: newMetrics(c.Metrics, c.SELinux != nil), timeout: callTimeout, tearDownWait: tearDownWait, followPeriod: defaultFollowPeriod,
		tearDowns: map[string]*runningTearDown{}, followed: map[string]*followedVolume{}, loop: loop.New(),
		cluster: c.Cluster, inUse: map[v1.UniqueVolumeName]map[string]bool{},
	}
	if err := os.MkdirAll(filepath.Join(root, "plugins"), 0o750); err != nil {
		return nil, fmt.Errorf("make the directory of CSI drivers: %w", err)
	}
	v.drivers = newDrivers(c.Plugins, c.Waker, c.Log)
	v.drivers.onChange = v.cluster.DriversChanged
	v.drivers.onRegistered = func(driver string) {
		v.loop.Go(func(ctx context.Context) { v.unstageUnused(ctx, driver) })
	}
	v.loadInUse()
	return v, nil
}

// Run unstages volumes that no pod uses, once their drivers have registered, and looks after
// volumes that need it periodically, until ctx ends. It returns ctx's cause.
func (v *Volumes) Run(ctx context.Context) error {
	defer v.unfollowAll()
	v.loop.Run(ctx, func(time.Time) time.Time { return time.Time{} })
	return context.Cause(ctx)
}

// Registered returns the registered drivers, sorted by name.
func (v *Volumes) Registered() []pod.CSIDriver { return v.drivers.infos() }

// RefreshAttachLimit asks a registered driver again how many volumes can be attached, and tells the
// cluster if that has changed. It blocks until the driver has answered, for 2 minutes at
// most.
func (v *Volumes) RefreshAttachLimit(ctx context.Context, driver string) error {
	return v.drivers.refreshAttachLimit(ctx, driver)
}

// Drivers returns the names of the registered drivers, sorted.
func (v *Volumes) Drivers() []string { return v.drivers.names() }

// SetUp makes the driver stage a volume, if it supports that, and publish it at Path. It
// blocks as long as the driver takes, at most 2 minutes, or until ctx ends. After an error
// the driver may still be working on it, which TearDown handles. SetUp may be called again
// after any outcome.
//
// podOwns says that the caller must apply the pod's fsGroup to the volume's files,
// because the driver does not. Errors have upstream's wording, with Secrets' values
// masked. When a missing driver registers, the pod is woken (Waker).
func (v *Volumes) SetUp(ctx context.Context, volume pod.CSIVolume) (podOwns bool, err error) {
	return v.setUp(ctx, volume, false)
}

// setUp is SetUp; with again it publishes a volume again, unless it was torn down.
func (v *Volumes) setUp(ctx context.Context, volume pod.CSIVolume, again bool) (podOwns bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	p, err := v.plan(ctx, &volume)
	if err != nil {
		return false, fmt.Errorf("%s: %w", pluginName, err)
	}
	d, err := v.drivers.driver(p.driver, volume.Pod.UID)
	if err != nil {
		if !again && p.isPublished(v.boot) {
			return false, nil // by an earlier podd: the driver is not needed
		}
		return false, fmt.Errorf("%s: mounter.SetUpAt failed to get CSI client: %w", pluginName, err)
	}
	if err := p.getSecrets(ctx, v.objects); err != nil {
		return false, err
	}
	if p.dirHasOtherVolume() {
		if err := v.TearDown(ctx, volume.Dir); err != nil {
			return false, err
		}
	}
	if err := v.awaitCluster(ctx, p, again); err != nil {
		return false, fmt.Errorf("%s: %w", pluginName, err)
	}
	unlock, err := v.locks.Lock(ctx, p.key())
	if err != nil {
		return false, fmt.Errorf("%s: another call for the volume is still in progress: %w", pluginName, err)
	}
	defer unlock()
	if again && !p.isSetUp() {
		return false, nil // it was torn down meanwhile
	}
	p.republishing = again
	s, err := v.openSession(ctx, d)
	if err != nil {
		v.drivers.addWaiting(p.driver, volume.Pod.UID)
		return false, fmt.Errorf("%s: %w", pluginName, err)
	}
	defer s.close()
	p.setCapabilities(s.capabilities)
	if err := v.stageAndPublish(ctx, s, p); err != nil {
		return false, fmt.Errorf("%s: %w", pluginName, err)
	}
	v.follow(volume, p)
	return p.appliesFSGroup(), nil
}

// stageAndPublish stages, publishes and expands the volume; the volume's lock is
// held.
func (v *Volumes) stageAndPublish(ctx context.Context, s *session, p *plan) error {
	if err := v.chooseLabel(p); err != nil {
		return err
	}
	if err := p.recordUser(v.boot); err != nil {
		return err
	}
	if err := v.stage(ctx, s, p); err != nil {
		return err
	}
	if err := v.publish(ctx, s, p); err != nil {
		return err
	}
	if p.claim != nil { // the cluster says when
		return v.expandClaim(ctx, s, p, p.claim, p.size)
	}
	return v.expandStandalone(ctx, s, p)
}

// Path returns where SetUp publishes a volume. It is pure.
func (v *Volumes) Path(volume pod.CSIVolume) string {
	return pathsOf(v.root, volume.Dir, newRecord(&volume, "")).target
}
