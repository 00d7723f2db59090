package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// ending is the manifest of a pod that takes two seconds for its hook and two more
// to end, and says when it does what.
func (e *env) ending(name, word string) string {
	return e.told(name, "terminationGracePeriodSeconds: 20", nil, []string{
		"name: main\nlifecycle: {preStop: {exec: {command: [/bin/sh, -c, 'echo " + word + "-hook >> /out/order; sleep 2']}}}\n" + says(word, word+"-ends", "2"),
	})
}

// TestAPodThatChangesWhileItEndsIsReplacedWhenItHasEnded: by what its manifest
// says then, and by nothing that it said in between.
func TestAPodThatChangesWhileItEndsIsReplacedWhenItHasEnded(t *testing.T) {
	e := begin(t)
	e.write("app.yaml", e.ending("app", "one"))
	old := e.ready("app")
	e.order("one")
	e.remove("app.yaml")
	e.order("one", "one-hook") // it is at its end
	e.write("app.yaml", e.ending("app", "two"))
	e.waitPod("app", "still the one that ends", func(p *v1.Pod) error {
		if p.UID != old.UID {
			return errors.New(describe(p))
		}
		return nil
	})
	e.write("app.yaml", e.ending("app", "three"))
	e.order("one", "one-hook", "one-ends", "three")
	e.waitPod("app", "the last one", func(p *v1.Pod) error {
		if p.UID == old.UID || condition(p, v1.PodReady) != v1.ConditionTrue {
			return errors.New(describe(p))
		}
		return nil
	})
}

// TestAManifestThatComesBackWithinTheGracePeriodRunsOnceMore
// (kubernetes/kubernetes#104648): its hook runs once, its end takes the time that
// it needs, and then the same pod starts again.
func TestAManifestThatComesBackWithinTheGracePeriodRunsOnceMore(t *testing.T) {
	e := begin(t)
	text := e.ending("app", "app")
	e.write("app.yaml", text)
	old := e.ready("app")
	e.order("app")
	e.remove("app.yaml")
	e.order("app", "app-hook")
	e.write("app.yaml", text)
	e.remove("app.yaml") // whoever did that did it twice
	e.write("app.yaml", text)
	e.order("app", "app-hook", "app-ends", "app")
	p := e.waitPod("app", "ready again", func(p *v1.Pod) error {
		if condition(p, v1.PodReady) != v1.ConditionTrue || containerID(p, "main") == containerID(old, "main") {
			return errors.New(describe(p))
		}
		return nil
	})
	if p.UID != old.UID {
		t.Errorf("got UID %s, want %s as before", p.UID, old.UID)
	}
}

// TestAGracePeriodOfCenturiesIsNotNone: a number of seconds that no duration holds
// once meant SIGKILL at once, and a negative one does not mean that either.
func TestAGracePeriodOfCenturiesIsNotNone(t *testing.T) {
	for _, seconds := range []string{"9999999999", "-5"} {
		t.Run(seconds, func(t *testing.T) {
			e := begin(t)
			text := e.podOf("db", "trap ': > /out/term; sleep 0.3; : > /out/flushed; exit 0' TERM; : > /out/up; while :; do sleep 3600 & wait; done")
			e.write("db.yaml", replaced(e, text, "terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: "+seconds))
			e.mark("up")
			e.ready("db")
			e.remove("db.yaml")
			e.mark("term", "flushed")
		})
	}
}

// TestDeadSandboxesOfALivingPodAreCollected, and the containers in them but for
// the last of each name: its restart count goes on.
func TestDeadSandboxesOfALivingPodAreCollected(t *testing.T) {
	e := begin(t)
	e.write("hit.yaml", annotated(e.resting("hit"), "podd/restart-backoff-initial: 100ms, podd/restart-backoff-max: 100ms"))
	p := e.ready("hit")
	for i := range 4 {
		e.endSandbox("hit")
		before := containerID(p, "main")
		p = e.waitPod("hit", "ready in another sandbox", func(p *v1.Pod) error {
			if condition(p, v1.PodReady) != v1.ConditionTrue || containerID(p, "main") == before {
				return errors.New(describe(p))
			}
			return nil
		})
		if got := p.Status.ContainerStatuses[0].RestartCount; got <= int32(i) {
			t.Errorf("after its sandbox died %d times: got %d restarts", i+1, got)
		}
	}
	e.eventually("the dead sandboxes are gone", func(ctx context.Context) error {
		boxes, err := e.node.CRI.Sandboxes(ctx)
		if err == nil && len(boxes) > 2 {
			err = fmt.Errorf("there are %d", len(boxes))
		}
		return err
	})
	if n := e.containersOf("hit"); n > 2 {
		t.Errorf("got %d containers, want the one that runs and the last dead one", n)
	}
}
