package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/atomicfile"
	"podd/internal/pod"
)

// graves removes the logs of gone pods, each some time after its pod's end: a
// log shipper wants to read the last lines first. Each grave has a stone, a
// small file that a restart of podd finds; the logs' own directory is no record,
// for it may hold the logs of another agent's pods.
type graves struct {
	dir  string // of the stones; empty for none
	poke chan struct{}

	mu   sync.Mutex // guards pods
	pods []grave    // by due
}

// grave is also what a stone says.
type grave struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       pod.UID   `json:"uid"`
	Due       time.Time `json:"due"`
}

func newGraves(dir string) *graves { return &graves{dir: dir, poke: make(chan struct{}, 1)} }

func graveOf(p *v1.Pod, due time.Time) grave {
	return grave{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Due: due}
}

func (g grave) pod() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name, UID: g.UID}}
}

// add makes the grave of a pod that is gone.
func (g *graves) add(what grave) {
	g.mu.Lock()
	g.pods = append(g.pods, what)
	slices.SortStableFunc(g.pods, func(a, b grave) int { return a.Due.Compare(b.Due) })
	g.mu.Unlock()
	select {
	case g.poke <- struct{}{}: // capacity 1
	default:
	}
}

// next takes the first grave that is due, or says when that will be; a zero
// time for never.
func (g *graves) next(now time.Time) (what grave, due time.Time, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.pods) == 0 {
		return grave{}, time.Time{}, false
	}
	first := g.pods[0]
	if first.Due.After(now) {
		return grave{}, first.Due, false
	}
	g.pods = g.pods[1:]
	return first, time.Time{}, true
}

// run calls remove for each grave when its time has come, until ctx ends.
func (g *graves) run(ctx context.Context, remove func(grave)) {
	for ctx.Err() == nil {
		what, due, ok := g.next(time.Now())
		if ok {
			remove(what)
			continue
		}
		wait(ctx, g.poke, due)
	}
}

func (g *graves) stone(uid pod.UID) string { return filepath.Join(g.dir, string(uid)+".json") }

// carve writes the stone of a pod that is about to go, before the runtime
// forgets the last of it.
func (g *graves) carve(what grave) error {
	if g.dir == "" {
		return nil
	}
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(g.dir, 0o750); err != nil {
		return err
	}
	return atomicfile.Write(g.stone(what.UID), text, 0o640)
}

// clear removes a stone; none is no error.
func (g *graves) clear(uid pod.UID) error {
	if g.dir == "" {
		return nil
	}
	if err := os.Remove(g.stone(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read returns what the stones say that an earlier podd left. One that cannot
// be read is removed: what it said is lost.
func (g *graves) read() (found []grave, err error) {
	if g.dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(g.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	for _, e := range entries {
		path, what := filepath.Join(g.dir, e.Name()), grave{}
		text, err := os.ReadFile(path)
		if err == nil && strings.HasSuffix(path, ".json") {
			err = json.Unmarshal(text, &what)
		}
		if err != nil || what.UID == "" || path != g.stone(what.UID) {
			errs = append(errs, fmt.Errorf("%s does not say whose logs are to be removed: %w", path, errors.Join(err, os.Remove(path))))
			continue
		}
		found = append(found, what)
	}
	return found, errors.Join(errs...)
}

// wait blocks until poked, until the time at (never where it is zero), or
// until ctx ends.
func wait(ctx context.Context, poke <-chan struct{}, at time.Time) {
	var alarm <-chan time.Time
	if !at.IsZero() {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		alarm = t.C
	}
	select {
	case <-poke:
	case <-alarm:
	case <-ctx.Done():
	}
}
