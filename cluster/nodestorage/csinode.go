package nodestorage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/logonce"
	"podd/internal/pod"
	"podd/internal/wake"
)

// CSINodeClient reads and writes the cluster's objects about this node's drivers. Its methods
// block until the apiserver has answered.
type CSINodeClient interface {
	CSINode(ctx context.Context, name string) (*storagev1.CSINode, error)
	CreateCSINode(ctx context.Context, n *storagev1.CSINode) error
	// UpdateCSINode fails with 409 if the object has changed meanwhile.
	UpdateCSINode(ctx context.Context, n *storagev1.CSINode) error
	Node(ctx context.Context, name string) (*v1.Node, error)
	PatchNode(ctx context.Context, name string, patch []byte, subresource ...string) (*v1.Node, error)
	// FollowCSIDriver calls set with the CSIDriver of that name, or none, after each change,
	// and with an error while the apiserver cannot tell. It blocks until ctx ends.
	FollowCSIDriver(ctx context.Context, name string, set func(all []*storagev1.CSIDriver, err error))
}

// annotationNodeID holds the node's IDs by driver name, as a JSON object.
const annotationNodeID = "csi.volume.kubernetes.io/nodeid"

// syncBackoff is the time between attempts.
var syncBackoff = wake.Backoff{Initial: 500 * time.Millisecond, Max: 2 * time.Minute}

// CSINodeConfig configures a CSINodeUpdater.
type CSINodeConfig struct {
	Client CSINodeClient
	// Node is the Node's name.
	Node string
	// Registered returns the registered drivers, sorted by name. It must not block.
	Registered func() []pod.CSIDriver
	// RefreshAttachLimit asks a registered driver again how many volumes can be attached. If that has
	// changed, Registered returns the new value and Changed is called. It may block.
	RefreshAttachLimit func(ctx context.Context, driver string) error
	Log                *slog.Logger
}

// CSINodeUpdater shows the cluster which CSI drivers are registered: in the CSINode, and in the
// Node's annotation and labels. It keeps entries of drivers that podd does not know: just after
// podd starts, they have not registered yet. Create it with NewCSINodeUpdater, and Run it once.
type CSINodeUpdater struct {
	cfg  CSINodeConfig
	poke wake.Signal

	// The rest belongs to Run. everRegistered are the drivers that have been registered.
	// limitPollers has a function for each that stops polling its limit. failure is the last
	// error.
	everRegistered map[string]bool
	limitPollers   map[string]context.CancelFunc
	failure        logonce.Failure
}

// NewCSINodeUpdater returns a CSINodeUpdater. Nothing is requested before Run.
func NewCSINodeUpdater(cfg CSINodeConfig) *CSINodeUpdater {
	return &CSINodeUpdater{cfg: cfg, poke: wake.New(), everRegistered: map[string]bool{}, limitPollers: map[string]context.CancelFunc{}}
}

// Changed reports that the registered drivers have changed. It does not block.
func (d *CSINodeUpdater) Changed() {
	d.poke.Notify()
}

// Run keeps the cluster's objects up to date until ctx ends. The Node must exist.
func (d *CSINodeUpdater) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	for delay := time.Duration(0); ; {
		d.syncLimitPollers(ctx, &work)
		err := d.sync(ctx)
		var retry time.Time
		if err != nil {
			delay = syncBackoff.Next(delay)
			retry = time.Now().Add(delay)
		} else {
			delay = 0
		}
		if ctx.Err() == nil {
			d.logFailure(err)
		}
		if !wake.Until(ctx, d.poke, retry) {
			return ctx.Err()
		}
	}
}

func (d *CSINodeUpdater) logFailure(err error) {
	if d.failure.IsNew(err) {
		d.cfg.Log.Warn("cannot show the cluster this node's CSI drivers: trying again", "error", err)
	}
}

// sync writes the differences. It adds a driver to the CSINode, where the scheduler finds it,
// only after the driver's ID and topology are in the Node.
func (d *CSINodeUpdater) sync(ctx context.Context) error {
	registered := d.cfg.Registered()
	for i := range registered {
		d.everRegistered[registered[i].Name] = true
	}
	node, err := d.cfg.Client.Node(ctx, d.cfg.Node)
	if err != nil {
		return fmt.Errorf("get the Node: %w", err)
	}
	registered, collisions := withoutCollisions(node, registered)
	patch, err := d.nodePatch(node, registered)
	if err != nil {
		return err
	}
	if patch != nil {
		if _, err := d.cfg.Client.PatchNode(ctx, d.cfg.Node, patch, "status"); err != nil {
			return fmt.Errorf("write the Node's annotation and labels: %w", err)
		}
	}
	return errors.Join(collisions, d.syncCSINode(ctx, node, registered))
}

// withoutCollisions returns the drivers with a topology that agrees with the Node's labels and
// with the drivers before them. The error is about the others.
func withoutCollisions(node *v1.Node, all []pod.CSIDriver) (rest []pod.CSIDriver, err error) {
	var errs []error
	labels := maps.Clone(node.Labels)
	for _, driver := range all {
		agrees := true
		for key, value := range driver.Topology {
			if old, labeled := labels[key]; labeled && old != value {
				agrees = false
				errs = append(errs, fmt.Errorf("driver %s: detected topology value collision: driver reported %q:%q but existing label is %q:%q", driver.Name, key, value, key, old))
			}
		}
		if agrees && labels != nil {
			maps.Copy(labels, driver.Topology)
		}
		if agrees {
			rest = append(rest, driver)
		}
	}
	return rest, errors.Join(errs...)
}

// stale reports whether a driver was registered and no longer is.
func (d *CSINodeUpdater) stale(name string, registered []pod.CSIDriver) bool {
	return d.everRegistered[name] && !slices.ContainsFunc(registered, func(r pod.CSIDriver) bool { return r.Name == name })
}

// nodePatch returns the patch of the Node's annotation and labels, or nil if nothing changes.
func (d *CSINodeUpdater) nodePatch(node *v1.Node, registered []pod.CSIDriver) ([]byte, error) {
	ids := map[string]string{}
	before := node.Annotations[annotationNodeID]
	if before != "" {
		if err := json.Unmarshal([]byte(before), &ids); err != nil {
			ids = map[string]string{} // the annotation is unusable
		}
	}
	maps.DeleteFunc(ids, func(name, _ string) bool { return d.stale(name, registered) })
	labels := map[string]string{}
	for _, driver := range registered {
		ids[driver.Name] = driver.NodeID
		for key, value := range driver.Topology {
			if node.Labels[key] != value {
				labels[key] = value
			}
		}
	}
	metadata := map[string]any{}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	text, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	switch {
	case len(ids) == 0 && before != "":
		metadata["annotations"] = map[string]any{annotationNodeID: nil}
	case len(ids) > 0 && string(text) != before:
		metadata["annotations"] = map[string]any{annotationNodeID: string(text)}
	}
	if len(metadata) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}

func (d *CSINodeUpdater) syncCSINode(ctx context.Context, node *v1.Node, registered []pod.CSIDriver) error {
	old, err := d.cfg.Client.CSINode(ctx, d.cfg.Node)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("get the CSINode: %w", err)
	}
	if missing {
		made := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: d.cfg.Node, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		}}}
		made.Spec.Drivers = d.csiNodeDrivers(nil, registered)
		if err := d.cfg.Client.CreateCSINode(ctx, made); err != nil {
			return fmt.Errorf("create the CSINode: %w", err)
		}
		return nil
	}
	next := old.DeepCopy()
	next.Spec.Drivers = d.csiNodeDrivers(old.Spec.Drivers, registered)
	if equality.Semantic.DeepEqual(old.Spec, next.Spec) {
		return nil
	}
	if err := d.cfg.Client.UpdateCSINode(ctx, next); err != nil {
		return fmt.Errorf("update the CSINode: %w", err)
	}
	return nil
}

// csiNodeDrivers returns the drivers for the CSINode, sorted by name.
func (d *CSINodeUpdater) csiNodeDrivers(old []storagev1.CSINodeDriver, registered []pod.CSIDriver) []storagev1.CSINodeDriver {
	next := []storagev1.CSINodeDriver{} // required by the API, even if empty
	for _, driver := range old {
		if !d.everRegistered[driver.Name] {
			next = append(next, driver)
		}
	}
	for _, driver := range registered {
		n := storagev1.CSINodeDriver{Name: driver.Name, NodeID: driver.NodeID, TopologyKeys: slices.Sorted(maps.Keys(driver.Topology))}
		if driver.MaxVolumes > 0 {
			count := int32(min(driver.MaxVolumes, math.MaxInt32))
			n.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
		}
		next = append(next, n)
	}
	slices.SortFunc(next, func(a, b storagev1.CSINodeDriver) int { return strings.Compare(a.Name, b.Name) })
	return next
}
