package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podd/agent"
	"podd/cri/critest/state"
	"podd/internal/pod"
	real "podd/prober"
)

// execer answers exec probes as the scripts' probe command says; a probe's
// command names its kind.
type execer struct{ n *node }

func (e execer) ExecSync(_ context.Context, id string, cmd []string, _ time.Duration) (pod.ExecResult, error) {
	time.Sleep(callTime)
	e.n.mu.Lock()
	k := e.n.rt.Container(id)
	runs := k != nil && k.State == state.Running
	e.n.mu.Unlock()
	if !runs {
		return pod.ExecResult{}, errors.New("the container does not run")
	}
	e.n.prober.mu.Lock()
	defer e.n.prober.mu.Unlock()
	if e.n.prober.fails[called(k)+" "+cmd[0]] {
		return pod.ExecResult{ExitCode: 1, Output: []byte("not well")}, nil
	}
	return pod.ExecResult{}, nil
}

// probing gives each podd of a node podd's own prober instead of the scripts'.
func probing(n *node) {
	state := n.t.TempDir()
	n.edit = func(ctx context.Context, p *podd, cfg *agent.Config) {
		prober := real.New(real.Config{
			Execer: execer{n}, Waker: wakeFunc(func(uid pod.UID) { p.agent.Wake(uid, time.Time{}) }), Events: n,
			StateDir: state, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), PerProbe: prometheus.NewRegistry(),
		})
		cfg.Probes = prober
		go func() { _ = prober.Run(ctx) }()
	}
}

type wakeFunc func(pod.UID)

func (f wakeFunc) Wake(uid pod.UID) { f(uid) }

// TestProbesAndAgentTogether plays stories with podd's own prober.
func TestProbesAndAgentTogether(t *testing.T) {
	const probe = "periodSeconds: 10, timeoutSeconds: 1, successThreshold: 1, failureThreshold: 3"
	files := map[string][]byte{
		"live.yaml": []byte("metadata: {name: shop}\nspec: {containers: [{name: web, image: i, livenessProbe: {" + probe + ", exec: {command: [live]}}}]}"),
		"startup.yaml": []byte("metadata: {name: shop}\nspec: {containers: [{name: web, image: i, startupProbe: {" + probe +
			", exec: {command: [startup]}}, livenessProbe: {" + probe + ", exec: {command: [live]}}}]}"),
		"ready.yaml": []byte("metadata: {name: shop}\nspec: {terminationGracePeriodSeconds: 60, containers: [{name: web, image: i, readinessProbe: {" + probe + ", exec: {command: [ready]}}}]}"),
		"sidecar.yaml": []byte("metadata: {name: shop}\nspec: {initContainers: [{name: log, image: i, restartPolicy: Always, startupProbe: {" + probe +
			", exec: {command: [startup]}}}], containers: [{name: web, image: i}]}"),
		"hook.yaml": []byte("metadata: {name: shop}\nspec: {containers: [{name: web, image: i, lifecycle: {postStart: {exec: {command: [x]}}}, readinessProbe: {" +
			probe + ", exec: {command: [ready]}}}]}"),
	}
	for name, script := range map[string]string{
		"a container that is never well is restarted, ever more slowly": `probe shop/web live=fail; apply live.yaml; sleep 20s; expect shop/web started=1
			sleep 13s; expect shop/web started=2; expect shop event:Unhealthy>0; sleep 6h; expect shop/web started<150; expect shop Observe<1500
			probe shop/web live=ok; sleep 10m; expect shop/web running; expect shop cond:Ready=True`,
		"startup holds liveness back": `probe shop/web startup=fail live=fail; apply startup.yaml; sleep 19s; expect shop/web started=1; expect shop cond:Ready=False
			probe shop/web startup=ok; sleep 10s; expect shop/web started=1; probe shop/web live=ok; sleep 1m; expect shop/web started=1; expect shop cond:Ready=True`,
		"readiness is kept over a restart of podd": `apply ready.yaml; sleep 1s; expect shop cond:Ready=True; restart-agent; sleep 100ms; expect shop cond:Ready=True; sleep 1m; expect shop cond:Ready=True
			probe shop/web ready=fail; sleep 40s; expect shop cond:Ready=False; restart-agent; sleep 100ms; expect shop cond:Ready=False; expect shop/web started=1`,
		"a sidecar's startup is waited for": `probe shop/log startup=fail; apply sidecar.yaml; sleep 15s; expect shop/web started=0; probe shop/log startup=ok; sleep 10s
			expect shop/web running; expect shop/log started=1`,
		"what is not through its hook is not probed": `hook shop/web poststart 1m; apply hook.yaml; sleep 50s; expect shop cond:Ready=False event:Unhealthy=0; sleep 12s; expect shop cond:Ready=True`,
		"a pod that ends is asked whether it is ready, until it is gone": `stubborn shop; apply ready.yaml; sleep 1s; remove shop; probe shop/web ready=fail; sleep 40s
			expect shop cond:Ready=False; sleep 1m; expect nothing left`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scenario{node: newNode(newFakeRuntime(t)), began: time.Now(), files: files}
				probing(s.node)
				defer s.end()
				s.play("start-agent; speak file; speak http; sleep 1m") // first probes after a start are spread
				s.play(script)
			})
		})
	}
}
