package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent"
	"podd/internal/pod"
)

// claimStock has a claim for every pod, and answers as it is told.
type claimStock struct {
	s *scenario

	mu       sync.Mutex
	prepare  error
	release  error
	held     map[pod.UID]bool
	heard    []string // calls that succeeded, by the pod's name, with what ran of it
	tries    int      // calls that failed
	retained []map[pod.UID]bool
	dropped  []pod.UID
}

func (c *claimStock) Prepare(_ context.Context, p *v1.Pod) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.prepare != nil {
		c.tries++
		return c.prepare
	}
	c.held[p.UID] = true
	c.heard = append(c.heard, "prepare "+p.Name)
	return nil
}

func (c *claimStock) Container(p *v1.Pod, _ *v1.Container) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.held[p.UID] {
		return nil, errors.New("it is not prepared")
	}
	return []string{"example.com/gpu=" + p.Name}, nil
}

func (c *claimStock) Health(p *v1.Pod) map[string][]v1.ResourceStatus {
	return map[string][]v1.ResourceStatus{"web": {{Name: v1.ResourceName("claim:" + p.Name)}}}
}

func (c *claimStock) HasPrepared(uid pod.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[uid]
}

func (c *claimStock) Unprepare(_ context.Context, uid pod.UID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.held[uid] {
		return nil
	}
	if c.release != nil {
		c.tries++
		return c.release
	}
	delete(c.held, uid)
	name, _, _ := strings.Cut(string(uid), "-")
	c.heard = append(c.heard, "unprepare "+name+" running="+c.s.fact(name+"/web", "running")+" sandbox="+c.s.fact(name, "sandbox"))
	return nil
}

func (c *claimStock) Drop(uid pod.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped = append(c.dropped, uid)
}

func (c *claimStock) Retain(keep map[pod.UID]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retained = append(c.retained, keep)
}

func (c *claimStock) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *claimStock) calls() (heard []string, tries int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.heard), c.tries
}

func withClaims(t *testing.T, policy string, play func(t *testing.T, s *scenario, c *claimStock)) {
	inBubble(t, func(t *testing.T, s *scenario) {
		c := &claimStock{s: s, held: map[pod.UID]bool{}}
		d := &deviceStock{answer: pod.ContainerDevices{Ready: true, CDI: []string{"example.com/nic=0"}}, health: v1.ResourceHealthStatusHealthy, released: map[pod.UID]int{}}
		s.edit = func(_ context.Context, _ *podd, cfg *agent.Config) {
			cfg.ResourceClaims, cfg.Devices, cfg.Admitter = c, d, d
		}
		s.files["gpu.yaml"] = []byte("metadata: {name: gpu}\nspec: {restartPolicy: " + policy + ", containers: [{name: web, image: web}]}")
		s.play("remove shop; sleep 1m; restart-agent; speak http; sleep 1s")
		play(t, s, c)
	})
}

// shownEnded says whether a pod's last report has no container that runs.
func (s *scenario) shownEnded(name string) bool {
	for _, c := range s.reported(name).Observed.Containers {
		if c.State != pod.ContainerExited {
			return false
		}
	}
	return true
}

func TestASandboxWaitsForThePodsClaims(t *testing.T) {
	withClaims(t, "Always", func(t *testing.T, s *scenario, c *claimStock) {
		c.set(func() { c.prepare = errors.New("prepare dynamic resources: DRA driver x is not registered") })
		s.play("apply gpu.yaml; sleep 1h; expect gpu event:FailedPrepareDynamicResources=1 sandbox=false")
		if w := s.reported("gpu").Waiting["web"]; w.Message != "prepare dynamic resources: DRA driver x is not registered" {
			t.Errorf("got %+v", w)
		}
		if _, tries := c.calls(); tries < 300 || tries > 400 {
			t.Errorf("tried %d times in an hour, want every 10 s", tries)
		}
		c.set(func() { c.prepare = nil })
		s.podd.agent.Wake(s.uidOf("gpu"), time.Time{})
		s.play("sleep 2s; expect gpu/web running")
		s.mu.Lock()
		if got := s.made[len(s.made)-1].CDI; !slices.Equal(got, []string{"example.com/nic=0", "example.com/gpu=gpu"}) {
			t.Errorf("the container has %q", got)
		}
		s.mu.Unlock()
		if got := s.reported("gpu").Devices["web"]; len(got) != 2 || got[0].Name != "example.com/gpu" || got[1].Name != "claim:gpu" {
			t.Errorf("the health is %v", got)
		}
		// A container that is restarted has what was prepared; another sandbox has it prepared
		// again.
		s.play("exit gpu/web code=1; sleep 1m; expect gpu/web running")
		if heard, _ := c.calls(); !slices.Equal(heard, []string{"prepare gpu"}) {
			t.Errorf("got %q", heard)
		}
		s.play("kill-sandbox gpu; sleep 1m; expect gpu/web running")
		if heard, _ := c.calls(); !slices.Equal(heard, []string{"prepare gpu", "prepare gpu"}) {
			t.Errorf("got %q", heard)
		}
	})
}

// The cluster takes the last status for the sign that a claim is free.
func TestClaimsAreUnpreparedBeforeAPodsEndIsReported(t *testing.T) {
	for how, end := range map[string]string{"by itself": "exit gpu/web code=0", "removed": "remove gpu"} {
		t.Run(how, func(t *testing.T) {
			withClaims(t, "Never", func(t *testing.T, s *scenario, c *claimStock) {
				s.play("apply gpu.yaml; sleep 1s; expect gpu/web running")
				uid := s.uidOf("gpu")
				c.set(func() { c.release = errors.New("the driver is away") })
				s.play(end + "; sleep 10m; expect gpu known; expect gpu/web running=false; expect gpu sandbox=false")
				if s.shownEnded("gpu") {
					t.Error("its end is reported")
				}
				if _, tries := c.calls(); tries < 50 || tries > 80 {
					t.Errorf("tried %d times in ten minutes", tries)
				}
				c.set(func() { c.release = nil })
				s.podd.agent.Wake(uid, time.Time{})
				s.play("sleep 2s")
				if heard, _ := c.calls(); !slices.Equal(heard, []string{"prepare gpu", "unprepare gpu running=false sandbox=false"}) {
					t.Errorf("got %q", heard)
				}
				if how == "by itself" && !s.shownEnded("gpu") {
					t.Error("its end is not reported")
				}
				if how == "removed" {
					s.play("expect gpu known=false gone")
				}
			})
		})
	}
}

func TestClaimsOfPodsThatAreGoneOrRejectedAreDropped(t *testing.T) {
	withClaims(t, "Always", func(t *testing.T, s *scenario, c *claimStock) {
		s.play("apply gpu.yaml; sleep 1s")
		uid := s.uidOf("gpu")
		s.play("restart-agent; speak file; speak http; sleep 1s")
		c.set(func() {
			if len(c.retained) < 2 || !c.retained[len(c.retained)-1][uid] {
				t.Errorf("retained %v, want those of gpu", c.retained)
			}
			if len(c.dropped) > 0 {
				t.Errorf("dropped %v", c.dropped)
			}
		})
	})
	withDevices(t, func(t *testing.T, s *scenario, d *deviceStock) {
		c := &claimStock{s: s, held: map[pod.UID]bool{}}
		s.edit = func(_ context.Context, _ *podd, cfg *agent.Config) {
			cfg.ResourceClaims, cfg.Devices, cfg.Admitter = c, d, d
		}
		s.play("restart-agent; speak http; sleep 1s")
		d.set(func() { d.verdict = pod.Verdict{Reason: "UnexpectedAdmissionError", Message: "no"} })
		s.play("apply gpu.yaml; sleep 1s")
		uid := s.uidOf("gpu")
		c.set(func() {
			if !slices.Contains(c.dropped, uid) {
				t.Errorf("dropped %v, want %s", c.dropped, uid)
			}
		})
	})
}
