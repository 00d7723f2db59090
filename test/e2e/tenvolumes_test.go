package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podd/internal/perftest"
	"podd/test/e2e/testnode"
)

// tenVolumes are five ConfigMaps, three Secrets, a projected volume and an emptyDir.
func tenVolumes() (objects string, volumes []string) {
	var text strings.Builder
	for i := range 5 {
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: settings%d}, data: {key: %q}}\n", i, strings.Repeat("value ", 100))
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: Secret, metadata: {name: password%d}, stringData: {key: %q}}\n", i, strings.Repeat("value ", 100))
		volumes = append(volumes, fmt.Sprintf("configMap: {name: settings%d}", i))
	}
	for i := range 3 {
		volumes = append(volumes, fmt.Sprintf("secret: {secretName: password%d}", i))
	}
	return text.String(), append(volumes, "projected: {sources: [{configMap: {name: settings0}}, {secret: {name: password4, items: [{key: key, path: secret}]}}]}", "emptyDir: {}")
}

// withVolumes adds volumes to a pod of podOf, mounted at /v/0 and on.
func withVolumes(manifest string, sources []string) string {
	var mounts, volumes strings.Builder
	for i, source := range sources {
		fmt.Fprintf(&mounts, ", {name: v%[1]d, mountPath: /v/%[1]d}", i)
		fmt.Fprintf(&volumes, "  - name: v%d\n    %s\n", i, source)
	}
	return replaced(nil, manifest, "mountPath: /out}]", "mountPath: /out}"+mounts.String()+"]") + volumes.String()
}

// TestTenVolumesAddLittleToAPodsStart, whose control is a pod without them.
func TestTenVolumesAddLittleToAPodsStart(t *testing.T) {
	e := begin(t)
	objects, volumes := tenVolumes()
	e.write("objects.yaml", objects)
	n := 0
	starting := func(check string, volumes []string) func() time.Duration {
		return func() time.Duration {
			n++
			name := fmt.Sprintf("ten%d", n)
			at := e.write(name+".yaml", withVolumes(e.podOf(name, check+": > /out/"+name+"; ${REST}"), volumes))
			took := e.mark(name).Sub(at)
			e.remove(name + ".yaml")
			e.podGone(name)
			return took
		}
	}
	with := starting("for v in 0 1 2 3 4 5 6 7 8; do [ -e /v/$v/key ] || exit 1; done; [ -d /v/9 ] || exit 1; ", volumes)
	without := starting("", nil)
	with() // warms the caches of both
	const most = 1.5
	r := perftest.Compare(7, most, with, without)
	t.Logf("a pod with ten volumes: %v", r)
	if r.Ratio() > most {
		t.Errorf("a pod with ten volumes takes %.2f times what one without takes, want %.1f at most", r.Ratio(), most)
	}
}

// TestPodsWithObjectsHaveNoGoroutinesAndNoWatchesOfTheirOwn: what podd follows them
// with does not grow with pods or objects.
func TestPodsWithObjectsHaveNoGoroutinesAndNoWatchesOfTheirOwn(t *testing.T) {
	e := begin(t)
	const pods = 8
	with := func(prefix string, volumes []string, look func()) {
		for i := range pods {
			name := fmt.Sprintf("%s%d", prefix, i)
			e.write(name+".yaml", withVolumes(e.resting(name), volumes))
		}
		for i := range pods {
			e.ready(fmt.Sprintf("%s%d", prefix, i))
		}
		look()
		for i := range pods {
			e.remove(fmt.Sprintf("%s%d.yaml", prefix, i))
		}
		for i := range pods {
			e.podGone(fmt.Sprintf("%s%d", prefix, i))
		}
	}
	objects, volumes := tenVolumes()
	goroutines, watches := math.MaxInt, 0
	with("plain", nil, func() {
		for range 20 {
			n, _ := e.goroutines()
			goroutines, watches = min(goroutines, n), max(watches, e.inotifyWatches())
			time.Sleep(50 * time.Millisecond)
		}
	})
	e.write("objects.yaml", objects)
	with("objects", volumes, func() {
		// What follows a start, a look at the volumes' contents for one, takes its time
		// on a slow machine: what counts is what stays.
		ctx, cancel := context.WithTimeout(e.Context(), patience)
		defer cancel()
		var stacks string
		err := testnode.Poll(ctx, 50*time.Millisecond, func() error {
			more, now := e.goroutines()
			moreWatches := e.inotifyWatches()
			stacks = now
			if more >= goroutines+pods || moreWatches > watches {
				return fmt.Errorf("it has %d goroutines and %d inotify watches with %d pods of ten volumes, %d and %d without volumes: want no more for each pod",
					more, moreWatches, pods, goroutines, watches)
			}
			t.Logf("%d pods: %d goroutines and %d watches; with ten volumes each: %d and %d", pods, goroutines, watches, more, moreWatches)
			return nil
		})
		if err != nil {
			t.Logf("podd's goroutines:\n%s", stacks)
			t.Errorf("podd does not come to rest: %v", err)
		}
	})
}

// goroutines returns podd's goroutines: how many and, for a person, where they are. The
// gauge in its metrics would also count those that gather the other metrics.
func (e *env) goroutines() (n int, stacks string) {
	e.Helper()
	body, err := e.podd.Get(e.Context(), "/debug/pprof/goroutine?debug=1")
	if err != nil {
		e.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(body), "goroutine profile: total %d\n", &n); err != nil {
		e.Fatalf("no total in podd's goroutine profile: %v\n%.200s", err, body)
	}
	return n, string(body)
}

// inotifyWatches is how many podd has.
func (e *env) inotifyWatches() int {
	e.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", e.podd.Pid()))
	n := 0
	for _, f := range files {
		text, _ := os.ReadFile(f)
		n += strings.Count(string(text), "inotify wd:")
	}
	if err != nil || n == 0 {
		e.Fatalf("podd has %d inotify watches, %v: want that of its manifest directory at least", n, err)
	}
	return n
}

// podGone waits until podd has nothing of a pod any more.
func (e *env) podGone(name string) {
	e.Helper()
	e.eventually("pod "+name+" goes", func(ctx context.Context) error {
		l, err := e.listing(ctx)
		for _, p := range l.Pods {
			if p.Pod.Name == name+"-"+e.podd.NodeName() {
				return errors.New("it is there")
			}
		}
		return err
	})
}
