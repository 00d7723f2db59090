package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// pretendNetwork records what it was told, and fails with err.
type pretendNetwork struct {
	mu      sync.Mutex
	calls   []string
	err     error
	changes int
}

func (n *pretendNetwork) Assign(_ context.Context, cidrs []netip.Prefix) error {
	return n.note(fmt.Sprint(cidrs))
}

func (n *pretendNetwork) UpdateRuntimeConfig(_ context.Context, podCIDR string) error {
	return n.note(podCIDR)
}

func (n *pretendNetwork) note(call string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, call)
	return n.err
}

func (n *pretendNetwork) told() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

func (n *pretendNetwork) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
}

func (n *pretendNetwork) changed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes++
}

func (n *pretendNetwork) changedTimes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changes
}

// aPodCIDR runs one in the bubble; log has what it says.
func aPodCIDR(t *testing.T, cfg PodCIDRConfig) (p *PodCIDR, log *strings.Builder) {
	t.Helper()
	log = &strings.Builder{}
	cfg.AwaitReload, cfg.Log = func(context.Context) {}, slog.New(slog.NewTextHandler(log, nil))
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	p = NewPodCIDR(cfg)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go func() { _ = p.Run(ctx) }()
	return p, log
}

func nodeWith(cidrs ...string) *v1.Node { return &v1.Node{Spec: v1.NodeSpec{PodCIDRs: cidrs}} }

func TestPodCIDROfTheNodeReachesTheNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &pretendNetwork{}
		p, _ := aPodCIDR(t, PodCIDRConfig{Network: network, Changed: network.changed})
		p.ObserveNode(nodeWith())
		synctest.Wait()
		if len(network.told()) > 0 || p.NotReady() != nil {
			t.Errorf("a Node without podCIDR: got %q, %v", network.told(), p.NotReady())
		}
		p.ObserveNode(&v1.Node{Spec: v1.NodeSpec{PodCIDR: "10.0.1.0/24"}}) // of an old control plane
		synctest.Wait()
		if want := []string{"[10.0.1.0/24]"}; !slices.Equal(network.told(), want) || network.changedTimes() != 1 {
			t.Errorf("got %q and %d changes, want %q and 1", network.told(), network.changedTimes(), want)
		}

		refused := errors.New("pods have other addresses")
		network.fail(refused)
		p.ObserveNode(nodeWith("10.0.2.0/24"))
		synctest.Wait()
		if err := p.NotReady(); !errors.Is(err, refused) || network.changedTimes() != 2 {
			t.Errorf("refused: got %v and %d changes, want the reason and 2", err, network.changedTimes())
		}
		before := len(network.told())
		time.Sleep(retryPodCIDR + time.Second)
		synctest.Wait()
		if len(network.told()) != before+1 || p.NotReady() == nil {
			t.Errorf("%d attempts in the time of one, %v", len(network.told())-before, p.NotReady())
		}
		network.fail(nil)
		time.Sleep(retryPodCIDR)
		synctest.Wait()
		if p.NotReady() != nil {
			t.Errorf("after the pods ended: %v", p.NotReady())
		}
		before = len(network.told())
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(network.told()) != before {
			t.Errorf("%d more attempts after it was taken up", len(network.told())-before)
		}
		p.ObserveNode(nodeWith("nonsense"))
		synctest.Wait()
		if err := p.NotReady(); err == nil || !strings.Contains(err.Error(), `"nonsense"`) {
			t.Errorf("nonsense: got %v", err)
		}
	})
}

func TestPodCIDRIsSaidToAnotherRuntimeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := &pretendNetwork{err: errors.New("not now")}
		p, _ := aPodCIDR(t, PodCIDRConfig{Runtime: runtime})
		p.ObserveNode(nodeWith("10.0.1.0/24", "fd00:1::/64"))
		synctest.Wait()
		if p.NotReady() != nil {
			t.Errorf("another runtime's network makes the node not ready: %v", p.NotReady())
		}
		runtime.fail(nil)
		time.Sleep(time.Minute)
		p.ObserveNode(nodeWith("10.0.1.0/24", "fd00:1::/64"))
		synctest.Wait()
		if want := slices.Repeat([]string{"10.0.1.0/24,fd00:1::/64"}, 2); !slices.Equal(runtime.told(), want) {
			t.Errorf("got %q, want a failed call and one that did not: %q", runtime.told(), want)
		}
	})
}

func TestConfiguredPodCIDRWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &pretendNetwork{}
		p, log := aPodCIDR(t, PodCIDRConfig{Network: network, Configured: netip.MustParsePrefix("10.0.1.0/24")})
		p.ObserveNode(nodeWith("10.0.1.0/24"))
		synctest.Wait()
		if log.Len() > 0 {
			t.Errorf("for the same: said %q", log)
		}
		for range 3 {
			p.ObserveNode(nodeWith("10.0.2.0/24"))
			synctest.Wait()
		}
		if said := log.String(); len(network.told()) > 0 || p.NotReady() != nil || strings.Count(said, "\n") != 1 || !strings.Contains(said, "omit --pod-cidr") {
			t.Errorf("got %q, %v, said %q", network.told(), p.NotReady(), said)
		}
	})
}
