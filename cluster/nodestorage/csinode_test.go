package nodestorage

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// cluster is an apiserver with one Node, and the drivers of a node.
type cluster struct {
	mu      sync.Mutex
	node    *v1.Node
	csiNode *storagev1.CSINode
	drivers []pod.CSIDriver
	away    error
	writes  int

	follows   map[string]func([]*storagev1.CSIDriver, error)
	refreshed map[string]int
	refusal   error // of what is refreshed
}

func (c *cluster) CSINode(context.Context, string) (*storagev1.CSINode, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.csiNode == nil {
		return nil, apierrors.NewNotFound(storagev1.Resource("csinodes"), "n")
	}
	return c.csiNode, c.away
}

func (c *cluster) CreateCSINode(_ context.Context, n *storagev1.CSINode) error {
	return c.UpdateCSINode(context.Background(), n)
}

func (c *cluster) UpdateCSINode(_ context.Context, n *storagev1.CSINode) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.csiNode = n
	c.writes++
	return nil
}

func (c *cluster) Node(context.Context, string) (*v1.Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node.DeepCopy(), c.away
}

func (c *cluster) PatchNode(_ context.Context, _ string, patch []byte, _ ...string) (*v1.Node, error) {
	var p struct {
		Metadata struct {
			Labels      map[string]string
			Annotations map[string]*string
		}
	}
	if err := json.Unmarshal(patch, &p); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, value := range p.Metadata.Labels {
		c.node.Labels[key] = value
	}
	for key, value := range p.Metadata.Annotations {
		delete(c.node.Annotations, key)
		if value != nil {
			c.node.Annotations[key] = *value
		}
	}
	c.writes++
	return c.node, nil
}

func (c *cluster) registered() []pod.CSIDriver {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drivers
}

// shows describes what the cluster knows.
func (c *cluster) shows() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	if c.csiNode != nil {
		for _, d := range c.csiNode.Spec.Drivers {
			text := d.Name + "=" + d.NodeID + "(" + strings.Join(d.TopologyKeys, ",") + ")"
			if d.Allocatable != nil {
				text += "!"
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, " ") + " " + c.node.Annotations[annotationNodeID] + " " + c.node.Labels["zone"]
}

func running(t *testing.T, c *cluster, run func(d *CSINodeUpdater, set func(...pod.CSIDriver))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := NewCSINodeUpdater(CSINodeConfig{
			Client: c, Node: "n", Registered: c.registered, RefreshAttachLimit: c.refresh, Log: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		run(d, func(all ...pod.CSIDriver) {
			c.mu.Lock()
			c.drivers = all
			c.mu.Unlock()
			d.Changed()
		})
		cancel()
		<-done
	})
}

func newCluster() *cluster {
	return &cluster{follows: map[string]func([]*storagev1.CSIDriver, error){}, refreshed: map[string]int{}, node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1", Labels: map[string]string{}, Annotations: map[string]string{}}}}
}

func TestTheClusterKnowsTheRegisteredDrivers(t *testing.T) {
	c := newCluster()
	running(t, c, func(_ *CSINodeUpdater, set func(...pod.CSIDriver)) {
		want := func(when, want string) {
			t.Helper()
			if got := c.shows(); got != want {
				t.Errorf("%s: got %s, want %s", when, got, want)
			}
		}
		want("none", "  ")
		if c.csiNode == nil || len(c.csiNode.OwnerReferences) != 1 || c.csiNode.OwnerReferences[0].UID != "1" {
			t.Errorf("without drivers: got %+v", c.csiNode)
		}
		a := pod.CSIDriver{Name: "a", NodeID: "na", Topology: map[string]string{"zone": "z1"}, MaxVolumes: 7}
		set(a)
		want("one", `a=na(zone)! {"a":"na"} z1`)
		set(a, pod.CSIDriver{Name: "b", NodeID: "nb"})
		want("two", `a=na(zone)! b=nb() {"a":"na","b":"nb"} z1`)
		writes := c.writes
		set(a, pod.CSIDriver{Name: "b", NodeID: "nb"})
		if want("again", `a=na(zone)! b=nb() {"a":"na","b":"nb"} z1`); c.writes != writes {
			t.Errorf("again: %d writes of what does not change", c.writes-writes)
		}
		set(pod.CSIDriver{Name: "b", NodeID: "other"})
		want("one has gone, the other changed", `b=other() {"b":"other"} z1`)
		set()
		want("all have gone", "  z1")
	})
}

// Drivers of an earlier podd register soon; meanwhile, their volumes stay usable.
func TestDriversThatHaveNotRegisteredYetStayKnown(t *testing.T) {
	c := newCluster()
	c.node.Annotations[annotationNodeID] = `{"a":"na","old":"no"}`
	c.csiNode = &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "old", NodeID: "no"}, {Name: "a", NodeID: "na"}}}}
	running(t, c, func(_ *CSINodeUpdater, set func(...pod.CSIDriver)) {
		if c.shows(); c.writes > 0 && len(c.csiNode.Spec.Drivers) != 2 {
			t.Errorf("at the start: got %+v", c.csiNode.Spec)
		}
		set(pod.CSIDriver{Name: "a", NodeID: "na"})
		if got, want := c.shows(), `a=na() old=no() {"a":"na","old":"no"} `; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		set()
		if got, want := c.shows(), `old=no() {"old":"no"} `; got != want {
			t.Errorf("one has gone: got %s, want %s", got, want)
		}
	})
}

func TestADriverWhoseTopologyContradictsTheNodeIsNotShown(t *testing.T) {
	c := newCluster()
	c.node.Labels["zone"] = "z2"
	running(t, c, func(_ *CSINodeUpdater, set func(...pod.CSIDriver)) {
		set(pod.CSIDriver{Name: "a", NodeID: "na", Topology: map[string]string{"zone": "z1"}}, pod.CSIDriver{Name: "b", NodeID: "nb"})
		if got, want := c.shows(), `b=nb() {"b":"nb"} z2`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		c.mu.Lock()
		delete(c.node.Labels, "zone")
		c.mu.Unlock()
		time.Sleep(5 * time.Minute) // it is tried again
		if got, want := c.shows(), `a=na(zone) b=nb() {"a":"na","b":"nb"} z1`; got != want {
			t.Errorf("the label is gone: got %s, want %s", got, want)
		}
	})
}

func TestAnApiserverThatIsAwayIsToldLater(t *testing.T) {
	c := newCluster()
	c.away = errors.New("connection refused")
	running(t, c, func(_ *CSINodeUpdater, set func(...pod.CSIDriver)) {
		set(pod.CSIDriver{Name: "a", NodeID: "na"})
		time.Sleep(time.Minute)
		c.mu.Lock()
		c.away = nil
		c.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if got, want := c.shows(), `a=na() {"a":"na"} `; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
