package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"podd/internal/perftest"
	"podd/test/e2e/whole"
)

const (
	// objectsOfAKind is how many ConfigMaps the benchmark has, and how many Secrets.
	objectsOfAKind = 25
	// aKey is a key of each.
	aKey = "key0"
)

// volumesOfTen are the ten volumes of a pod: five ConfigMaps, three Secrets, one
// projected and an emptyDir.
func volumesOfTen(int) []string {
	return []string{
		"configMap: {name: settings0}", "configMap: {name: settings1}", "configMap: {name: settings2}",
		"configMap: {name: settings3}", "configMap: {name: settings4}",
		"secret: {secretName: password0}", "secret: {secretName: password1}", "secret: {secretName: password2}",
		"projected: {sources: [{configMap: {name: settings5}}, {secret: {name: password5, items: [{key: key1, path: secret}]}}]}",
		"emptyDir: {}",
	}
}

// scriptOfTen marks the start, if the volumes are there.
func scriptOfTen(mark string) string {
	return "for v in 0 1 2 3 4 5 6 7 8; do [ -e /v/$v/" + aKey + " ] || exit 1; done; [ -d /v/9 ] || exit 1; " + script(mark)
}

// volumesOfTwo are those of a pod of the resting node: together they have all objects.
func volumesOfTwo(i int) []string {
	return []string{
		fmt.Sprintf("configMap: {name: settings%d}", i%objectsOfAKind),
		fmt.Sprintf("secret: {secretName: password%d}", i%objectsOfAKind),
	}
}

// giveObjects makes the objects known to the column's agent, before its pods; false
// where pods cannot name any.
func (b *bench) giveObjects(column string) (bool, error) {
	if column == colFloor {
		return true, b.layFloorVolumes()
	}
	agent, ok := b.agents[column].(objectTaker)
	if !ok {
		return false, nil
	}
	var text strings.Builder
	for i := range objectsOfAKind {
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: settings%d}, data: {%s}}\n", i, values(3))
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: Secret, metadata: {name: password%d}, stringData: {%s}}\n", i, values(2))
	}
	_, err := agent.object("objects", text.String())
	return true, err
}

// values are so many keys of 1 KiB.
func values(n int) string {
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprintf("key%d: %q", i, strings.Repeat("value of a key. ", 64)))
	}
	return strings.Join(keys, ", ")
}

// tenVolumes measures a pod with ten volumes and one without, either first in turn.
func (b *bench) tenVolumes(ctx context.Context, column string, round int) error {
	if ok, err := b.giveObjects(column); !ok || err != nil {
		return err
	}
	took := map[bool]time.Duration{}
	for i := range 2 {
		with, of := (round+i)%2 == 0, plain
		if with {
			of = shape{script: scriptOfTen, volumes: volumesOfTen}
		}
		names := []string{b.name("volumes-" + column)}
		begin, first, pods, err := b.startPods(ctx, column, 1, names, of)
		if err != nil {
			return errors.Join(err, b.stopPods(ctx, column, names, pods))
		}
		took[with] = first.Sub(begin)
		if err := b.stopPods(ctx, column, names, pods); err != nil {
			return err
		}
	}
	b.add(rowVolumes, column, took[true].Seconds())
	b.add(rowVolumesMore, column, (took[true] - took[false]).Seconds())
	return nil
}

// atRestWithObjects measures a node at rest with a ConfigMap and a Secret in every pod, and
// then the same podd with the same number of pods without: what podd does in its first
// minutes only would make a figure of two processes' starts.
func (b *bench) atRestWithObjects(ctx context.Context, column string, _ int) error {
	begun := b.agents[column].(*podd).begun
	if err := sleep(ctx, time.Until(begun.Add(b.plan.idle))); err != nil {
		return err
	}
	if ok, err := b.giveObjects(column); !ok || err != nil {
		return err
	}
	err := b.rest(ctx, column, shape{script: script, volumes: volumesOfTwo}, restRows{idle: rowIdleObjects, rss: rowRSSObjects})
	if err != nil {
		return err
	}
	return b.rest(ctx, column, plain, restRows{idle: rowIdleControl, rss: rowRSSControl})
}

// reads is the first argument of this program as the first process of a container
// that watches a volume.
const reads = "read-volume"

// readVolume is that process. It returns the exit code.
func readVolume(out, name, volume string) int {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	if err := whole.Watch(out, name, volume, term); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// updates measures how soon a changed ConfigMap is read in a container: one change
// alone, and the last of a thousand a second, with what those cost the agent.
func (b *bench) updates(ctx context.Context, column string, _ int) error {
	agent, ok := b.agents[column].(objectTaker)
	if !ok {
		return nil
	}
	u := &updater{bench: b, agent: agent, name: b.name("updates-" + column)}
	if err := u.start(ctx, column); err != nil {
		return err
	}
	for range 10 {
		took, err := u.write(ctx, 1)
		if err != nil {
			return err
		}
		b.add(rowUpdate, column, took.Seconds())
	}
	pid := b.agents[column].pid()
	before, err := perftest.CPUTime(pid)
	if err != nil {
		return err
	}
	began := time.Now()
	last, err := u.write(ctx, b.plan.updatesOfOne)
	if err != nil {
		return err
	}
	after, err := perftest.CPUTime(pid)
	if err != nil {
		return err
	}
	took := time.Since(began)
	b.say("  %d updates in %.1f s", b.plan.updatesOfOne, took.Seconds())
	b.add(rowUpdatesLast, column, last.Seconds())
	b.add(rowUpdatesCPU, column, (after-before).Seconds()/took.Seconds()*1000)
	if half, err := os.ReadFile(u.out + "/" + u.name + ".half"); err == nil {
		return fmt.Errorf("a reader saw half a version: %s", half)
	}
	return b.stopPods(ctx, column, []string{u.name}, nil)
}

// updater changes a ConfigMap that a container watches.
type updater struct {
	*bench
	agent   objectTaker
	name    string
	version int
}

// start lets the pod come that watches.
func (u *updater) start(ctx context.Context, column string) error {
	if _, err := u.put(""); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	of := shape{script: func(name string) string {
		return fmt.Sprintf(": > /out/%[1]s; exec /v/0 %[2]s /out %[1]s /v/1", name, reads)
	}, volumes: func(int) []string {
		return []string{fmt.Sprintf("hostPath: {path: %s, type: File}", self), "configMap: {name: changing}"}
	}}
	_, _, _, err = u.startPods(ctx, column, 1, []string{u.name}, of)
	return err
}

// put writes the next version.
func (u *updater) put(mark string) (time.Time, error) {
	u.version++
	var keys []string
	for key, text := range whole.Data(u.version, mark) {
		keys = append(keys, fmt.Sprintf("%s: %q", key, text))
	}
	return u.agent.object("changing", fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: changing}, data: {%s}}\n", strings.Join(keys, ", ")))
}

// write puts so many versions, a millisecond apart, and returns how long after the
// last of them the container has read it.
func (u *updater) write(ctx context.Context, versions int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	for i := range versions - 1 {
		if err := sleep(ctx, time.Until(began.Add(time.Duration(i)*time.Millisecond))); err != nil {
			return 0, err
		}
		if _, err := u.put(""); err != nil {
			return 0, err
		}
	}
	mark := fmt.Sprintf("v%d", u.version+1)
	at, err := u.put(mark)
	if err != nil {
		return 0, err
	}
	read, err := u.marks.Wait(ctx, u.name+"."+mark)
	return read.Sub(at), err
}
