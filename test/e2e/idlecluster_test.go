package e2e

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"podd/test/cluster"
)

// mayRepeat are the requests of a node at rest: it renews its lease, and says every five
// minutes how it is.
var mayRepeat = map[string]bool{"update leases": true, "patch nodes/status": true}

// TestANodeAtRestAsksNothingButForItsLease: whatever its pods name. The requests are counted
// by the apiserver's own audit, over so many renewals of the lease; a status of the node
// (one in five minutes) may be among them, and a watch that the apiserver has ended may be
// made again, once each. Nothing is read.
func TestANodeAtRestAsksNothingButForItsLease(t *testing.T) {
	const pods, renewals = 16, 4
	m := join(t)
	var names []string
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		names = append(names, name)
		m.apply(fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %[1]s}, stringData: {key: v%[1]s}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: %[1]s}, data: {key: v%[1]s}}\n", name))
		m.bind(replaced(m, m.resting(name), "    volumeMounts: [", "    env: [{name: KEY, valueFrom: {configMapKeyRef: {name: "+name+", key: key}}}]\n    volumeMounts: [{name: secret, mountPath: /secret}, ") +
			"  - name: secret\n    secret: {secretName: " + name + "}\n")
	}
	for _, name := range names {
		m.shown(name, "ready", isReady)
	}
	all := func(since time.Time) []cluster.Request {
		all, err := m.server.Requests(m.podd.NodeName(), since)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	// renewed waits for so many renewals after a time, and returns when the last was.
	renewed := func(since time.Time, n int) (at time.Time) {
		m.eventually(fmt.Sprintf("the lease is renewed %d times", n), func(context.Context) error {
			count := 0
			for _, r := range all(since) {
				if r.What() == "update leases" && r.At.After(since) {
					if count++; count == n {
						at = r.At
						return nil
					}
				}
			}
			return fmt.Errorf("it was renewed %d times", count)
		})
		return at
	}
	// What was still to be said of the pods' starts is said by the second renewal.
	begin := renewed(time.Now(), 2)
	end := renewed(begin, renewals)
	counts, watched := map[string]int{}, map[string]int{}
	var others []string
	for _, r := range all(begin) {
		if !r.At.After(begin) || r.At.After(end) {
			continue
		}
		counts[r.What()]++
		if r.Verb == "watch" {
			watched[r.What()+" "+r.Namespace+"/"+r.Name]++
		} else if !mayRepeat[r.What()] {
			others = append(others, r.String())
		}
	}
	t.Logf("with %d pods, %d Secrets and as many ConfigMaps, in %v: %v", pods, pods, end.Sub(begin).Round(time.Second), counts)
	if counts["update leases"] != renewals || counts["patch nodes/status"] > 1 || len(others) > 0 {
		t.Errorf("got %v, want %d renewals of the lease and at most one status of the node; not expected were:\n%s", counts, renewals, strings.Join(others, "\n"))
	}
	for what, n := range watched {
		if n > 1 {
			t.Errorf("%s was begun %d times", what, n)
		}
	}
	// That the audit shows what it would show: what the node did at its start, the watches of
	// the Secrets among it.
	started := map[string]bool{}
	for _, r := range all(time.Time{}) {
		started[r.What()] = true
	}
	for _, what := range []string{"watch pods", "watch secrets", "watch configmaps", "patch pods/status", "update leases"} {
		if !started[what] {
			t.Errorf("the audit has no %s; it has %v of %s", what, slices.Sorted(maps.Keys(started)), filepath.Base(m.server.Dir))
		}
	}
	m.delete(names...)
	m.gone(names...)
}
