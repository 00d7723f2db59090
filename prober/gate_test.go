package prober

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// commands is a runtime whose commands hang until their timeout, but those of the
// container "good", which take 30 ms. It notes when those began.
type commands struct {
	begun time.Time

	mu   sync.Mutex
	good []time.Duration
}

func (c *commands) ExecSync(ctx context.Context, id string, _ []string, timeout time.Duration) (pod.ExecResult, error) {
	if id == "good" {
		c.mu.Lock()
		c.good = append(c.good, time.Since(c.begun))
		c.mu.Unlock()
		time.Sleep(30 * millis)
		return pod.ExecResult{}, nil
	}
	select {
	case <-time.After(timeout):
		return pod.ExecResult{}, pod.ErrTimeout
	case <-ctx.Done():
		return pod.ExecResult{}, ctx.Err()
	}
}

// expectAsked fails the test unless the good container was asked at these times,
// or late after them at most.
func (c *commands) expectAsked(t *testing.T, name string, late time.Duration, want ...time.Duration) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.EqualFunc(c.good, want, func(got, want time.Duration) bool { return got >= want && got <= want+late }) {
		t.Errorf("%s: the healthy one was asked at %v, want %v, each at most %v later", name, c.good, want, late)
	}
}

// command is a probe by command that never ends a container.
func command(period int32) *v1.Probe {
	return with(every(period), func(p *v1.Probe) {
		p.FailureThreshold = 1000
		p.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
	})
}

// TestCommandsThatHangInManyPodsDelayNoHealthyOne: a command held its slot for a
// second, so that on two processors 50 pods whose commands hung (a file server
// that is gone) delayed a healthy pod's probe by 24 s and more.
func TestCommandsThatHangInManyPodsDelayNoHealthyOne(t *testing.T) {
	for _, hanging := range []int{0, 10, 50, 100} {
		inBubble(t, func(b *bench) {
			c := &commands{begun: b.begun}
			b.by(newHandlers(c, newGate(4)).run)
			for i := range hanging {
				id := fmt.Sprint("hung", i)
				b.sync(aPod(pod.UID(id), nil, command(10), command(10)), id)
				time.Sleep(77 * millis)
			}
			b.at(60 * sec)
			b.sync(aPod("good", nil, command(10), nil), "good")
			b.at(85 * sec)
			c.expectAsked(t, fmt.Sprint(hanging, " hang"), 200*millis, 60*sec, 70*sec, 80*sec)
		})
	}
}

// TestOnePodsCommandsLeavePlacesForOthers: forty containers of one pod that began
// together had their commands served before a pod that came a moment later.
func TestOnePodsCommandsLeavePlacesForOthers(t *testing.T) {
	inBubble(t, func(b *bench) {
		c := &commands{begun: b.begun}
		g := newGate(4)
		b.by(newHandlers(c, g).run)
		many := aPod("many", nil, command(10), nil)
		var targets []pod.ProbeTarget
		for i := range 40 {
			web := many.Spec.Containers[0].DeepCopy()
			web.Name = fmt.Sprint("c", i)
			targets = append(targets, pod.ProbeTarget{Container: web, ContainerID: web.Name, StartedAt: time.Now()})
		}
		b.Sync(many, "10.0.0.1", targets, false)
		synctest.Wait()
		b.sync(aPod("good", nil, command(10), nil), "good")
		b.at(25 * sec)
		c.expectAsked(t, "forty of one pod", 50*millis, 0, 10*sec, 20*sec)
		b.stop()
		time.Sleep(slotHoldTime)
		synctest.Wait()
		if len(g.shares) > 0 || len(g.slots) > 0 {
			t.Errorf("got %d pods and %d places in use when nothing runs, want none", len(g.shares), len(g.slots))
		}
	})
}
