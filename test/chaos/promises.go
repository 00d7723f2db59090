package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/test/e2e/testnode"
)

const (
	// patience is how long a node may take to come to rest: far more than it
	// takes, for a machine that is busy.
	patience = 3 * time.Minute
	// patienceOfAPod is for each of a storm besides.
	patienceOfAPod = 2 * time.Second
	// spared is how long what a broken-off call of this podd may still be at work
	// on is left alone, with some to look again.
	spared = 6 * time.Minute
)

// never is what must not be at any time.
func (w *world) never(ctx context.Context) error {
	if text, err := os.ReadFile(filepath.Join(w.out(), fileViolations)); err == nil && len(text) > 0 {
		return fmt.Errorf("containers found:\n%s", text)
	}
	if err := w.canariesLive(); err != nil {
		return err
	}
	if text := w.podd.LogTail(1 << 16); strings.Contains(text, "panic:") || strings.Contains(text, "DATA RACE") {
		return errors.New("podd's log has a panic or a data race")
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := w.deletedWithNothingLeft(short); err != nil {
		return err
	}
	pods, err := w.podd.Pods(short)
	if err != nil {
		return nil // it is only just starting, or its runtime is
	}
	return w.endedForGood(pods)
}

// endedForGood: a pod that was shown as ended stays so, and does not run again.
func (w *world) endedForGood(pods []v1.Pod) error {
	var errs []error
	for i := range pods {
		p := &pods[i]
		life := p.Annotations["life"]
		over := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
		known, was := w.ended[string(p.UID)]
		switch {
		case life == "": // its manifest went while there was no podd: it is about to go
		case !was && over && p.Status.Reason == "" && len(p.Status.ContainerStatuses) > 0:
			w.ended[string(p.UID)] = end{life: life, phase: p.Status.Phase, runs: w.started(life)}
		case was && p.Status.Phase != known.phase && !blind(p):
			errs = append(errs, fmt.Errorf("pod %s was %s, and is %s now", life, known.phase, p.Status.Phase))
		case was && w.started(life) > known.runs:
			errs = append(errs, fmt.Errorf("pod %s was %s, and ran again", life, known.phase))
		}
	}
	return errors.Join(errs...)
}

// blind says that podd, only just started, tells of the pod that the runtime has
// not answered yet: its phase is nobody's then.
func blind(p *v1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), func(s v1.ContainerStatus) bool {
		return s.State.Waiting != nil && strings.Contains(s.State.Waiting.Message, "the container runtime does not respond")
	})
}

// started is how often containers of a life have begun.
func (w *world) started(life string) int {
	n := 0
	files, _ := filepath.Glob(filepath.Join(w.out(), dirRuns, life+".*"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		n += strings.Count(string(text), "\n")
	}
	return n
}

// settle waits until the node is what the manifests say. What pods name is there.
func (w *world) settle(ctx context.Context) error {
	if err := w.restoreObjects(); err != nil {
		return err
	}
	w.member.restoreObjects()
	within, cancel := context.WithTimeout(ctx, patience+time.Duration(w.o.storm)*patienceOfAPod)
	defer cancel()
	if err := w.clusterAnswers(within); err != nil {
		return fmt.Errorf("the apiserver does not come back: %w", err)
	}
	err := testnode.Poll(within, 200*time.Millisecond, func() error {
		if err := w.never(within); err != nil {
			return testnode.Stop(err)
		}
		return w.atRest(within)
	})
	if err != nil {
		return fmt.Errorf("the node does not come to rest: %w", err)
	}
	return nil
}

// atRest says what is not as the manifests say.
func (w *world) atRest(ctx context.Context) error {
	pods, err := w.podd.Pods(ctx)
	if err != nil {
		return err
	}
	boxes, err := w.node.CRI.Sandboxes(ctx)
	if err != nil {
		return err
	}
	list, err := w.node.CRI.Containers(ctx)
	if err != nil {
		return err
	}
	held := w.held()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	uids := map[string]bool{}
	for _, wish := range w.desired {
		i := slices.IndexFunc(pods, func(p v1.Pod) bool { return p.Annotations["life"] == wish.life })
		if i < 0 {
			bad("pod %s is forgotten", wish.life)
			continue
		}
		p := &pods[i]
		uids[string(p.UID)] = true
		if err := wish.asWanted(p, held); err != nil {
			bad("pod %s: %w", wish.life, err)
		} else if err := w.seesNewest(wish); err != nil && wish.kind.rest == runs {
			bad("pod %s: %w", wish.life, err)
		}
		ready := 0
		for _, b := range boxes {
			if b.Metadata.GetUid() == string(p.UID) && b.State == runtimeapi.PodSandboxState_SANDBOX_READY {
				ready++
			}
		}
		if want := map[rest]int{runs: 1, ends: 0, cycles: 1}[wish.kind.rest]; ready != want {
			bad("pod %s has %d sandboxes that are ready, want %d", wish.life, ready, want)
		}
	}
	for _, p := range pods {
		if !uids[string(p.UID)] {
			bad("pod %s is there and nobody wants it", p.Annotations["life"])
		}
	}
	counts := map[string]int{}
	for _, b := range boxes {
		if !uids[b.Metadata.GetUid()] {
			bad("sandbox %.12s of %s is there and nobody wants it", b.Id, b.Metadata.GetName())
		}
		counts[b.Metadata.GetUid()]++
	}
	for _, c := range list {
		uid := c.Labels["io.kubernetes.pod.uid"]
		if !uids[uid] {
			bad("container %.12s of %s is there and nobody wants it", c.Id, c.Labels["io.kubernetes.pod.name"])
		}
		counts[uid+" "+c.Metadata.GetName()]++
	}
	for what, n := range counts {
		if n > 3 {
			bad("the runtime has %d of %s", n, what)
		}
	}
	for name := range held {
		owner, _, _ := strings.Cut(name, ".")
		if !slices.ContainsFunc(w.desired, func(o *wish) bool { return o.name == owner }) {
			bad("container %s runs, and nobody wants it", name)
		}
	}
	for _, name := range runtimesTemporary() {
		if !slices.Contains(w.temporary, name) {
			bad("%s is left in %s: a killed runtime's temporary files are nobody's there", name, os.TempDir())
		}
	}
	return errors.Join(append(errs, w.asTheClusterSees(ctx, held))...)
}

// runtimesTemporary are the directories of containerd and its shims where everybody's temporary
// files are: on them they mount for a moment. Those of podd's runtime are to be in its own.
func runtimesTemporary() []string {
	var names []string
	for _, pattern := range []string{"ovl-idmapped*", "containerd-mount*"} {
		paths, _ := filepath.Glob(filepath.Join(os.TempDir(), pattern)) // fails only for a bad pattern
		for _, path := range paths {
			names = append(names, filepath.Base(path))
		}
	}
	return names
}

// asWanted says what of a pod is not as it comes to be when nothing strikes.
func (w *wish) asWanted(p *v1.Pod, held map[string]bool) error {
	var running []string
	for _, name := range lasting(w.pod) {
		if held[w.name+"."+name] {
			running = append(running, name)
		}
	}
	ready := slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
	over := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	restarted := len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount > 0
	switch {
	case w.kind.rest == runs && (!ready || len(running) < len(lasting(w.pod))),
		w.kind.rest == ends && (!over || len(running) > 0),
		w.kind.rest == cycles && (over || !restarted):
		return fmt.Errorf("it is %s%s, ready %v, and these run: %v; its containers: %s", p.Status.Phase, because(p), ready, running, states(p))
	}
	return nil
}

func because(p *v1.Pod) string {
	if p.Status.Reason == "" {
		return ""
	}
	return " (" + p.Status.Reason + ": " + p.Status.Message + ")"
}

func states(p *v1.Pod) string {
	var all []string
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		switch {
		case s.State.Waiting != nil:
			all = append(all, fmt.Sprintf("%s waits (%s: %s)", s.Name, s.State.Waiting.Reason, s.State.Waiting.Message))
		case s.State.Terminated != nil:
			all = append(all, fmt.Sprintf("%s ended (%d, %s)", s.Name, s.State.Terminated.ExitCode, s.State.Terminated.Reason))
		default:
			all = append(all, s.Name+" runs")
		}
	}
	return strings.Join(all, ", ")
}

// held are the containers that run, whatever anybody says of them: their locks
// cannot be had.
func (w *world) held() map[string]bool {
	held := map[string]bool{}
	entries, _ := os.ReadDir(filepath.Join(w.out(), dirLocks))
	for _, e := range entries {
		f, err := os.Open(filepath.Join(w.out(), dirLocks, e.Name()))
		if err != nil {
			continue
		}
		// A shared lock for a moment: no container that begins now may find it held,
		// which is why it is only asked about, through /proc/locks, never taken.
		if lockedBy(f) {
			held[e.Name()] = true
		}
		_ = f.Close()
	}
	return held
}

// lockedBy says that somebody holds a lock on the file, without taking one.
func lockedBy(f *os.File) bool {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	text, err := os.ReadFile("/proc/locks")
	if err != nil {
		return false
	}
	inode := fmt.Sprintf("%02x:%02x:%d ", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "FLOCK") && strings.Contains(line, inode) {
			return true
		}
	}
	return false
}

// end takes all pods away and waits until nothing of them is left.
func (w *world) end(ctx context.Context) error {
	for _, wish := range w.desired {
		if wish.bound {
			w.deletePod(wish)
			continue
		}
		if _, err := w.podd.Delete(wish.file()); err != nil {
			return err
		}
	}
	w.desired = nil
	if err := w.settle(ctx); err != nil {
		return err
	}
	for _, o := range w.objects {
		if _, err := w.podd.Delete(o.file()); err != nil {
			return err
		}
	}
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, spared)
	defer cancel()
	err := w.scope().AwaitNothingLeft(within, w.before, 500*time.Millisecond)
	if err != nil {
		return fmt.Errorf("after the last pod: %w", err)
	}
	w.say(w.o.faults, "nothing is left %v after the last pod went", time.Since(began).Round(time.Millisecond))
	return w.never(ctx)
}
