package nodestorage

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/pod"
)

// says has the cluster's CSIDriver of that name want another period, in seconds: 0 for none,
// less for an apiserver that is away.
func (c *cluster) says(name string, period int64) {
	synctest.Wait()
	c.mu.Lock()
	set := c.follows[name]
	c.mu.Unlock()
	switch of := (&storagev1.CSIDriver{}); {
	case set == nil:
		panic("nobody follows " + name)
	case period < 0:
		set(nil, errors.New("connection refused"))
	case period == 0:
		set(nil, nil)
	default:
		of.Spec.NodeAllocatableUpdatePeriodSeconds = &period
		set([]*storagev1.CSIDriver{of}, nil)
	}
}

func (c *cluster) FollowCSIDriver(ctx context.Context, name string, set func([]*storagev1.CSIDriver, error)) {
	c.mu.Lock()
	c.follows[name] = set
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.follows, name)
}

func (c *cluster) refresh(_ context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refreshed[name]++
	return c.refusal
}

// TestADriversLimitIsReadAsOftenAsItWants and not at all without that.
func TestADriversLimitIsReadAsOftenAsItWants(t *testing.T) {
	c := newCluster()
	running(t, c, func(_ *CSINodeUpdater, set func(...pod.CSIDriver)) {
		want := func(when string, after time.Duration, name string, want int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.refreshed[name] != want {
				t.Errorf("%s: %s was asked %d times, want %d", when, name, c.refreshed[name], want)
			}
		}
		a, b := pod.CSIDriver{Name: "a", NodeID: "na"}, pod.CSIDriver{Name: "b", NodeID: "nb"}
		set(a, b)
		want("before the apiserver has answered", time.Hour, "a", 0)
		c.says("a", 0)
		want("without a CSIDriver", time.Hour, "a", 0)
		c.says("a", 10)
		want("every ten seconds", 35*time.Second, "a", 3)
		c.says("a", 10) // something else of it has changed
		want("and on", 5*time.Second, "a", 4)
		c.says("a", -1)
		want("in an outage", 20*time.Second, "a", 6)
		c.says("a", 60)
		want("less often", 119*time.Second, "a", 7)
		c.says("a", 0)
		want("no longer", time.Hour, "a", 7)
		want("the other", 0, "b", 0)
		c.says("a", 10)
		c.says("b", 10)
		c.mu.Lock()
		c.refusal = errors.New("no")
		c.mu.Unlock()
		want("one that does not answer", 25*time.Second, "b", 2)
		set(a)
		want("one that has gone", 30*time.Second, "b", 2)
		want("one that stays", 0, "a", 7+5)
		c.mu.Lock()
		if _, still := c.follows["b"]; still || len(c.follows) != 1 {
			t.Errorf("followed are %d", len(c.follows))
		}
		c.mu.Unlock()
		set(a, b)
		c.says("b", 10)
		want("one that is back", 15*time.Second, "b", 3)
	})
	if len(c.follows) > 0 {
		t.Error("it is still followed")
	}
}

// TestAnotherLimitIsShown as soon as it is known.
func TestAnotherLimitIsShown(t *testing.T) {
	c := newCluster()
	running(t, c, func(_ *CSINodeUpdater, set func(...pod.CSIDriver)) {
		for _, limit := range []int64{3, 7, 0} {
			set(pod.CSIDriver{Name: "a", NodeID: "na", MaxVolumes: limit})
			c.shows()
			i := slices.IndexFunc(c.csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == "a" })
			if of := c.csiNode.Spec.Drivers[i].Allocatable; limit == 0 && of != nil || limit > 0 && (of == nil || int64(*of.Count) != limit) {
				t.Errorf("%d: it shows %+v", limit, of)
			}
		}
	})
}
