package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// apiserverAway is the store of a podd that cannot ask its apiserver.
type apiserverAway struct {
	*store
	why error
}

func (a apiserverAway) ConfigMap(*v1.Pod, string) (*v1.ConfigMap, error) { return nil, a.why }

func (a apiserverAway) Token(*v1.Pod, *v1.ServiceAccountTokenProjection) (string, error) {
	return "", a.why
}

type tokenFor string

func (s tokenFor) Token(*v1.Pod, *v1.ServiceAccountTokenProjection) (string, error) {
	return string(s), nil
}

// A podd that was restarted while the apiserver is away restarts containers with the
// volumes that they had; a machine that booted has none of them.
func TestWithoutTheApiserverVolumesOfAnEarlierPoddCount(t *testing.T) {
	p := aPod("uid-1",
		v1.Volume{Name: "settings", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}},
		v1.Volume{Name: "access", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}},
		}}}},
	)
	dir := tempDir(t)
	objects := newStore(aConfigMap("settings", "level", "low"))
	first := newMounter(t, objects.into, func(o *Options) { o.RootDir, o.Tokens = dir, tokenFor("t1") })
	if err := ensure(t, first, p); err != nil {
		t.Fatal(err)
	}
	content := func() (all string) {
		for _, file := range []string{"kubernetes.io~configmap/settings/level", "kubernetes.io~projected/access/token", "kubernetes.io~projected/access/level"} {
			text, err := os.ReadFile(filepath.Join(first.dirs.Pod(p.UID), "volumes", file))
			all += fmt.Sprintf("%s %v,", text, err != nil)
		}
		return all
	}
	before := content()
	if before != "low false,t1 false,low false," {
		t.Fatalf("got %q", before)
	}
	other := p.DeepCopy()
	other.UID = "uid-2"
	for _, c := range []struct {
		what string
		why  error
		pod  *v1.Pod
		fit  bool
	}{
		{"it cannot be asked", pod.APIServerUnavailable(errors.New("connection refused")), p, true},
		{"it says no", fmt.Errorf("configmap %w", pod.ErrNotFound), p, false},
		{"a pod that never had its volumes", pod.APIServerUnavailable(errors.New("connection refused")), other, false},
	} {
		away := apiserverAway{newStore(), c.why}
		m := newMounter(t, func(o *Options) { o.RootDir, o.Objects, o.Events, o.Downward, o.Tokens = dir, away, away, away, away })
		if err := ensure(t, m, c.pod); (err == nil) != c.fit {
			t.Errorf("%s: got %v, want ready: %t", c.what, err, c.fit)
		}
		if got := content(); got != before {
			t.Errorf("%s: got %q, want %q", c.what, got, before)
		}
	}
	away := apiserverAway{newStore(), pod.APIServerUnavailable(errors.New("connection refused"))}
	m := newMounter(t, func(o *Options) {
		o.RootDir, o.Objects, o.Events, o.Downward, o.Tokens = dir, away, away, away, refusedTokens{}
	})
	if err := ensure(t, m, p); !errors.Is(err, pod.ErrNotFound) {
		t.Errorf("one of its sources was refused before the apiserver went away: got %v, want that", err)
	}
}

// refusedTokens is the tokens of a service account that the apiserver does not have.
type refusedTokens struct{}

func (refusedTokens) Token(*v1.Pod, *v1.ServiceAccountTokenProjection) (string, error) {
	return "", fmt.Errorf("serviceaccount %w", pod.ErrNotFound)
}

// awaitedTokens is the tokens of a podd that has just been started: each is requested when it
// is first asked for, and the answer comes later.
type awaitedTokens struct{ answer string }

func (a *awaitedTokens) Token(*v1.Pod, *v1.ServiceAccountTokenProjection) (string, error) {
	if a.answer == "" {
		return "", fmt.Errorf("failed to fetch token: %w", pod.ErrObjectPending)
	}
	return a.answer, nil
}

func TestARestartedPoddDoesNotReportWhatTheApiserverHasNotAnsweredYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newStore(), tempDir(t)
		p := aPod("u1", v1.Volume{Name: "access", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}},
		}}})
		mustBeReady(t, newMounter(t, s.into, func(o *Options) { o.RootDir, o.Tokens = dir, tokenFor("t1") }), p)

		tokens := &awaitedTokens{}
		m := newMounter(t, s.into, func(o *Options) { o.RootDir, o.Tokens = dir, tokens })
		m.Follow(p)
		time.Sleep(time.Hour)
		synctest.Wait()
		if told := s.told(); len(told) > 0 {
			t.Errorf("got the events %q, want none", told)
		}
		if n := testutil.CollectAndCount(m.metrics.operations); n > 0 {
			t.Errorf("%d kinds of operations are counted, want none", n)
		}
		mustHold(t, volumeDir(m, "u1", "projected", "access"), map[string]string{"token": "t1"})
		tokens.answer = "t2"
		m.Changed(p.UID)
		synctest.Wait()
		mustHold(t, volumeDir(m, "u1", "projected", "access"), map[string]string{"token": "t2"})
	})
}
