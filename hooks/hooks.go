package hooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/httpget"
	"podd/internal/pod"
)

// Execer runs a command in a container: *cri.Client.
type Execer interface {
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error)
}

// Recorder takes the events of pods: LifecycleHTTPFallback.
type Recorder interface {
	Event(p *v1.Pod, eventType, reason, message string)
}

// reasonFallback is the reason of the event for a handler that asked for https while the
// pod speaks http; upstream's.
const reasonFallback = "LifecycleHTTPFallback"

// Config is what a Runner is made of. Execer and Events must be set; Metrics
// and Log may be nil.
type Config struct {
	Execer  Execer
	Events  Recorder
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Runner runs handlers. It may be used by many at a time.
type Runner struct {
	cfg       Config
	log       *slog.Logger
	metrics   *metrics
	transport http.RoundTripper
}

// New returns a Runner.
func New(cfg Config) *Runner {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Runner{cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Metrics), transport: httpget.NewHookTransport()}
}

// Run runs one handler and blocks until it has ended or ctx has, which then is an error
// too. The error's text is the kubelet's message about the failed hook. It may contain
// what the command wrote, so it belongs into the container's status but, as upstream
// decided, not into an event.
func (r *Runner) Run(ctx context.Context, req pod.HookRequest) error {
	where := fmt.Sprintf("for Container %q in Pod %q failed - error: ", req.Container.Name,
		fmt.Sprintf("%s_%s(%s)", req.Pod.Name, req.Pod.Namespace, req.Pod.UID))
	h := req.Handler
	switch {
	case h.Exec != nil:
		output, err := r.exec(ctx, req.ContainerID, h.Exec.Command)
		if err != nil {
			return fmt.Errorf("Exec lifecycle hook (%v) %s%w, message: %q", h.Exec.Command, where, err, output) //nolint:staticcheck // upstream's words
		}
	case h.HTTPGet != nil:
		if err := r.http(ctx, req); err != nil {
			return fmt.Errorf("HTTP lifecycle hook (%s) %s%w", h.HTTPGet.Path, where, err) //nolint:staticcheck // upstream's words
		}
	case h.Sleep != nil:
		if err := r.sleep(ctx, pod.Seconds(h.Sleep.Seconds)); err != nil {
			return fmt.Errorf("Sleep lifecycle hook (%d) %s%w", h.Sleep.Seconds, where, err) //nolint:staticcheck // upstream's words
		}
	default:
		return fmt.Errorf("Cannot run handler: invalid handler: %v", h) //nolint:staticcheck // upstream's words
	}
	return nil
}

// exec runs a command until it ends or ctx does. If ctx has a deadline, the runtime gets
// it: it then kills the command even if podd has ended.
func (r *Runner) exec(ctx context.Context, id string, command []string) (output []byte, err error) {
	var timeout time.Duration // none
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline), time.Second) // 0 would be none
	}
	result, err := r.cfg.Execer.ExecSync(ctx, id, command, timeout)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(command, " "), result.ExitCode, result.Output)
	}
	return result.Output, err
}

func (r *Runner) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		r.metrics.sleepTerminatedEarly.Inc()
		return errors.New("container terminated before sleep hook finished")
	}
}

// http sends one request. Any answer is a success, as upstream. If a handler wants https
// and the server speaks http, the request is repeated without TLS: the handler was
// written for a kubelet that ignored the scheme (kubernetes/kubernetes#86139).
func (r *Runner) http(ctx context.Context, req pod.HookRequest) error {
	ask, err := httpget.NewRequest(ctx, req.Handler.HTTPGet, req.Container, req.PodIP, "lifecycle")
	if err != nil {
		return err
	}
	if err = r.do(ask); !errors.Is(err, http.ErrSchemeMismatch) {
		return err
	}
	plain := ask.Clone(ctx)
	plain.URL.Scheme = "http"
	plain.Header.Del("Authorization") // it was meant for TLS
	if r.do(plain) != nil {
		return err
	}
	r.metrics.fallbacks.Inc()
	r.cfg.Events.Event(req.Pod, v1.EventTypeWarning, reasonFallback,
		fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", plain.URL.Host))
	return nil
}

// do makes a request and reads at most a few KiB of the body, up to its end: a server may
// end the body to say that its work is done.
func (r *Runner) do(req *http.Request) error {
	client := http.Client{Transport: r.transport, CheckRedirect: httpget.CheckRedirect}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.ContentLength <= httpget.MaxBody {
		if _, err := httpget.ReadBody(resp.Body); err != nil {
			r.log.Debug("cannot read the response to a lifecycle handler to its end", "host", req.URL.Host, "error", err)
		}
	}
	return nil
}
