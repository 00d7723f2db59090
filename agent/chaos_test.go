package agent_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/cri/critest/state"
	"podd/internal/pod"
)

// TestChaosEndsInOrder does to a node what machines and people do to it, at
// random and in simulated time, and then leaves it alone. Whatever happened:
// every desired pod runs or was terminated for good, nothing runs that is not desired,
// and (the runtime complains) nothing ever ran twice, or out of its turn.
func TestChaosEndsInOrder(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 30
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scenario{node: newNode(newFakeRuntime(t)), began: time.Now(), files: chaosFiles()}
				defer s.end()
				c := &chaos{scenario: s, chance: rand.New(rand.NewPCG(seed, 2))}
				for _, name := range chaosPods {
					s.play("dies " + name + "/prep code=0 after=1s")
				}
				s.play("start-agent; speak file; speak http")
				for range 40 {
					c.step()
				}
				c.calm()
				c.check()
			})
		})
	}
}

var chaosPods = []string{"a", "b", "c"}

func chaosFiles() map[string][]byte {
	files := make(map[string][]byte)
	for _, name := range chaosPods {
		for version, spec := range chaosSpecs {
			files[fmt.Sprintf("%s%d", name, version)] = fmt.Appendf(nil, "metadata: {name: %s}\nspec: %s", name, spec)
		}
	}
	return files
}

// chaosSpecs are the versions of a pod. The init container prep ends by itself.
var chaosSpecs = []string{
	`{containers: [{name: web, image: v0}, {name: side, image: v0}]}`,
	`{containers: [{name: web, image: v1}, {name: side, image: v1}]}`,
	`{initContainers: [{name: prep, image: i}, {name: log, image: i, restartPolicy: Always}],
		containers: [{name: web, image: i, lifecycle: {preStop: {exec: {command: [x]}}, postStart: {exec: {command: [x]}}}}, {name: side, image: i}]}`,
	`{terminationGracePeriodSeconds: 90, initContainers: [
			{name: log, image: i, restartPolicy: Always, startupProbe: {periodSeconds: 1, failureThreshold: 20, exec: {command: [x]}}}, {name: prep, image: i}],
		containers: [{name: web, image: i, livenessProbe: {periodSeconds: 5, terminationGracePeriodSeconds: 40, exec: {command: [x]}},
				lifecycle: {preStop: {exec: {command: [x]}}}},
			{name: side, image: i, readinessProbe: {periodSeconds: 2, exec: {command: [x]}}}]}`,
	`{initContainers: [{name: prep, image: i}, {name: log, image: i, restartPolicy: Always}], containers: [
			{name: web, image: i, restartPolicy: Always, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]},
			{name: side, image: i}]}`,
	`{activeDeadlineSeconds: 300, initContainers: [{name: log, image: i, restartPolicy: Always}], containers: [{name: web, image: i}, {name: side, image: i}]}`,
}

type chaos struct {
	*scenario
	chance *rand.Rand
	story  []string
}

func (c *chaos) pick(from ...string) string { return from[c.chance.IntN(len(from))] }

// step does one thing and lets up to half a minute pass.
func (c *chaos) step() {
	name := c.pick(chaosPods...)
	call := c.pick("RunSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopSandbox", "RemoveSandbox", "Observe")
	switch c.chance.IntN(26) {
	case 0, 1, 2:
		c.say("apply %s%d", name, c.chance.IntN(len(chaosSpecs)))
	case 3, 4:
		c.say("remove %s", name)
	case 5:
		c.say("%s", c.pick("restart-agent", "restart-agent", "kill-agent"))
		if c.podd == nil {
			c.let(10 * time.Second)
			c.say("start-agent")
		}
	case 6:
		c.say("%s", c.pick("stop-runtime", "start-runtime", "start-runtime"))
		c.relist()
	case 7:
		c.say("fail %d %s %s", 1+c.chance.IntN(3), call, name)
	case 8:
		c.say("hang %s %s", call, name)
	case 9:
		if hanging := c.faults.Hanging(); len(hanging) > 0 {
			c.say("release %s", hanging[0])
		}
	case 10:
		c.say("late-sandbox %s", name)
	case 11:
		c.say("kill-sandbox %s", name)
	case 12:
		c.say("lose %s/%s", name, c.pick("web", "side", "log", "prep"))
	case 13:
		c.say("stubborn %s", name)
	case 14:
		c.say("stick %s %s", c.pick("RunSandbox", "CreateContainer", "StartContainer"), name)
	case 15: // a reboot, for one pod
		if c.podd != nil {
			c.say("stop-agent")
		}
		c.say("vanish %s", name)
		if c.chance.IntN(2) == 0 {
			c.say("remove %s", name)
		}
		c.say("start-agent")
	case 16:
		c.say("unstick")
	case 17:
		c.say("hook %s/web %s %s", name, c.pick("prestop", "poststart"), c.pick("hangs", "fails", "10s", "succeeds"))
	case 18, 19:
		c.say("probe %s/%s %s=%s", name, c.pick("web", "log", "side"), c.pick("live", "startup", "ready"), c.pick("fail", "ok"))
	case 20:
		c.say("dies %s/prep code=%d after=%s", name, c.chance.IntN(2), c.pick("1ms", "1s", "20s"))
	case 21:
		if c.chance.IntN(3) == 0 {
			c.say("end %s Evicted grace=%ds", name, c.chance.IntN(3)*5)
		}
	case 22:
		c.say("retry %s", name)
	case 23:
		c.say("%s", c.pick("reject "+name+" OutOfcpu", "admit "+name))
	default:
		c.say("exit %s/%s code=%s", name, c.pick("web", "side", "log"), c.pick("0", "1", "42"))
	}
	c.let(30 * time.Second)
}

// say plays a command if it can be done now: not every container runs.
func (c *chaos) say(format string, args ...any) {
	words := strings.Fields(fmt.Sprintf(format, args...))
	switch words[0] {
	case "late-sandbox":
		c.disk.Lock()
		report := c.report[words[1]]
		c.disk.Unlock()
		if report.StartTime.IsZero() || c.podd == nil {
			return // podd never began to make the pod
		}
	case "hang":
		if slices.Contains(c.faults.Hanging(), words[1]+" "+words[2]) {
			return
		}
	case "end", "retry":
		if _, err := c.wantedUID(words[1]); err != nil || c.podd == nil {
			return
		}
	}
	c.story = append(c.story, fmt.Sprintf("%v: %s", time.Since(c.began), strings.Join(words, " ")))
	if slices.Contains([]string{"exit", "lose", "retry"}, words[0]) {
		words = slices.Insert(words, 0, "?")
	}
	c.play(strings.Join(words, " "))
}

func (c *chaos) let(most time.Duration) { time.Sleep(time.Duration(c.chance.Int64N(int64(most)))) }

// relist is what pleg does when the event stream is back: it wakes every pod
// that it finds.
func (c *chaos) relist() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return
	}
	for _, b := range c.rt.Sandboxes() {
		if c.wake != nil {
			c.wake(uidOf(b), time.Time{})
		}
	}
}

// calm ends all faults and waits longer than any back-off.
func (c *chaos) calm() {
	c.mu.Lock()
	c.away = false
	c.mu.Unlock()
	c.faults.Calm()
	c.hooks.calm()
	for _, name := range chaosPods {
		c.say("admit %s", name)
		c.say("dies %s/prep code=0 after=1s", name)
		for _, ctr := range []string{"web", "log", "side"} {
			c.say("probe %s/%s live=ok startup=ok ready=ok", name, ctr)
		}
	}
	time.Sleep(time.Minute)
	c.relist()
	for _, name := range chaosPods {
		c.say("retry %s", name)
	}
	time.Sleep(20 * time.Minute)
	synctest.Wait()
}

func (c *chaos) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	desired := make(map[pod.UID]string)
	for name, d := range c.wants[pod.SourceFile] {
		desired[d.UID()] = name
		if c.endedForGood(name) {
			continue
		}
		ctrs := []string{"web", "side"}
		if len(d.Pod.Spec.InitContainers) > 0 {
			ctrs = append(ctrs, "log")
		}
		for _, ctr := range ctrs {
			if k := c.newest(name + "/" + ctr); k == nil || k.State != state.Running || uidOf(k.Sandbox) != d.UID() || !k.Sandbox.Ready {
				c.fault("%s/%s is desired and does not run; the pod is shown as %s %s", name, ctr, c.status[name].Phase, c.status[name].Reason)
			}
		}
	}
	for _, b := range c.rt.Sandboxes() {
		if desired[uidOf(b)] == "" {
			c.fault("sandbox %s of %s (%s) is left", b.ID, b.Pod, b.UID)
		}
	}
	for uid := range c.mounts {
		if desired[uid] == "" {
			c.fault("volumes of %s are left", uid)
		}
	}
	for _, name := range chaosPods {
		ready := slices.DeleteFunc(c.rt.Sandboxes(), func(b *fakeSandbox) bool { return b.Pod != name || !b.Ready })
		if len(ready) > 1 {
			c.fault("%d sandboxes of %s are ready", len(ready), name)
		}
	}
}

// endedForGood: the node ended the pod and said so, and nothing of it runs.
func (c *chaos) endedForGood(name string) bool {
	c.disk.Lock()
	st := c.status[name]
	c.disk.Unlock()
	if st.Phase != v1.PodFailed || st.Reason != pod.ReasonEvicted && st.Reason != pod.ReasonDeadlineExceeded {
		return false
	}
	for _, k := range c.rt.Containers() {
		if k.Sandbox.Pod == name && k.State == state.Running {
			c.fault("%s was ended (%s) and %s runs", name, st.Reason, k.Name)
		}
	}
	return true
}

func (c *chaos) fault(format string, args ...any) {
	c.t.Errorf(format, args...)
	if len(c.story) > 0 {
		c.t.Log("what was done:\n" + strings.Join(c.story, "\n"))
		c.story = nil
	}
}
