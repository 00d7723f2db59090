package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"podd/internal/perftest"
	"podd/test/e2e/whole"
)

// updates are how many versions a ConfigMap and a Secret have in ten seconds at a
// thousand a second.
const (
	updates = 10_000
	pace    = time.Millisecond
)

// changing are the objects of the pod that readers run in.
type changing struct {
	*env
	version int
}

// write puts the next version of both objects, in one file, into place.
func (c *changing) write(mark string) time.Time {
	c.Helper()
	c.version++
	data, err := json.Marshal(whole.Data(c.version, mark))
	if err != nil {
		c.Fatal(err)
	}
	return c.env.write("objects.yaml", `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: `+string(data)+"}\n---\n"+
		`{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: `+string(data)+"}\n")
}

// until writes so many versions, a millisecond apart where the machine is fast enough,
// the last with a mark, and returns when that was there.
func (c *changing) until(versions int, mark string) time.Time {
	c.Helper()
	began := time.Now()
	for i := range versions - 1 {
		time.Sleep(time.Until(began.Add(time.Duration(i) * pace)))
		c.write("")
	}
	return c.write(mark)
}

// seen waits until every reader has read the version with that mark, and returns when
// the last had.
func (c *changing) seen(mark string) time.Time {
	c.Helper()
	return c.mark("c."+mark, "s."+mark, "p."+mark)
}

// readers is a pod with a reader for each volume, each of another kind.
func (e *env) readers() string {
	var containers strings.Builder
	for _, name := range []string{"c", "s", "p"} {
		fmt.Fprintf(&containers, `  - name: %[1]s
    image: ${IMAGE}
    command: [/reader, /out, %[1]s, /volume]
    volumeMounts:
    - {name: out, mountPath: /out}
    - {name: reader, mountPath: /reader, readOnly: true}
    - {name: %[1]s, mountPath: /volume}
`, name)
	}
	return e.vars("${READER}", reader).Replace(`apiVersion: v1
kind: Pod
metadata: {name: readers}
spec:
  terminationGracePeriodSeconds: 1
  containers:
` + containers.String() + `  volumes:
  - name: out
    hostPath: {path: ${OUT}, type: Directory}
  - name: reader
    hostPath: {path: ${READER}, type: File}
  - name: c
    configMap: {name: settings}
  - name: s
    secret: {secretName: password}
  - name: p
    projected: {sources: [{configMap: {name: settings}}]}
`)
}

// TestAThousandUpdatesASecondAreSeenWholeAndTheLastAtOnce: none is seen half, podd
// does the work of a few of them, and the last is there about as soon as one alone.
func TestAThousandUpdatesASecondAreSeenWholeAndTheLastAtOnce(t *testing.T) {
	e := begin(t)
	c := &changing{env: e}
	c.write("first")
	e.write("readers.yaml", e.readers())
	c.seen("first")
	e.ready("readers")
	cpu := func() time.Duration {
		used, err := perftest.CPUTime(e.podd.Pid())
		if err != nil {
			t.Fatal(err)
		}
		return used
	}

	// The control: what one update costs podd that is not followed by another.
	const alone = 50
	before := cpu()
	for i := range alone {
		mark := fmt.Sprintf("alone%d", i)
		c.write(mark)
		c.seen(mark)
	}
	one := (cpu() - before) / alone

	before, began := cpu(), time.Now()
	at := c.until(updates, "last")
	took, seen := time.Since(began), c.seen("last").Sub(at)
	used := cpu() - before
	t.Logf("%d updates in %v: podd used %v of the processor, %.0f times what one alone takes (%v); the last was read %v after it was written",
		updates, took.Round(time.Millisecond), used, float64(used)/float64(one), one, seen.Round(time.Millisecond))
	if used > updates/5*one {
		t.Errorf("podd used %v for %d updates: want the work of a fifth of them at most, at %v each", used, updates, one)
	}
	e.wholeVersions(c.version)
}

// TestTheLastOfManyUpdatesIsThereAboutAsSoonAsOneAlone, whose time is the control.
func TestTheLastOfManyUpdatesIsThereAboutAsSoonAsOneAlone(t *testing.T) {
	e := begin(t)
	c := &changing{env: e}
	c.write("first")
	e.write("readers.yaml", e.readers())
	c.seen("first")
	e.ready("readers")
	round := 0
	until := func(versions int) func() time.Duration {
		return func() time.Duration {
			round++
			mark := fmt.Sprintf("round%d", round)
			at := c.until(versions, mark)
			return c.seen(mark).Sub(at)
		}
	}
	const most = 5
	if r := perftest.Compare(9, most, until(300), until(1)); r.Ratio() > most {
		t.Errorf("the last of 300 updates is there after %v, want %d times at most", r, most)
	} else {
		t.Log(r)
	}
	e.wholeVersions(c.version)
}

// wholeVersions waits until every reader has read the newest version, and checks that
// none has ever seen half of one.
func (e *env) wholeVersions(newest int) {
	e.Helper()
	for _, name := range []string{"c", "s", "p"} {
		var version, versions, reads int
		e.eventually("wait until "+name+" has read the newest version", func(context.Context) error {
			text := ""
			if e.marked(name + ".marked") {
				text = e.contents(name + ".marked")
			}
			if _, err := fmt.Sscan(text, &version, &versions, &reads); err != nil || version != newest {
				return fmt.Errorf("it tells %q, %w", text, errors.Join(err, errors.New("not of it")))
			}
			return nil
		})
		e.Logf("%s saw %d versions in %d reads", name, versions, reads)
		if e.marked(name + ".half") {
			e.Errorf("%s: %s", name, e.contents(name+".half"))
		}
	}
}
