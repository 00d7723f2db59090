package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

func newStore() *Store {
	return New(Config{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
}

func configMap(name, value string) *pod.Object {
	return &pod.Object{ConfigMap: &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string]string{"k": value}}}
}

func secret(name, value string) *pod.Object {
	return &pod.Object{Secret: &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string][]byte{"k": []byte(value)}}, Origin: "secrets.yaml", Line: 3}
}

// userOf returns a pod with envFrom of these ConfigMaps and Secrets; a Secret's name
// begins with s.
func userOf(uid string, names ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pod-" + uid, UID: pod.UID(uid)}, Spec: v1.PodSpec{Containers: []v1.Container{{}}}}
	for _, name := range names {
		ref := v1.LocalObjectReference{Name: name}
		from := v1.EnvFromSource{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref}}
		if strings.HasPrefix(name, "s") {
			from = v1.EnvFromSource{SecretRef: &v1.SecretEnvSource{LocalObjectReference: ref}}
		}
		p.Spec.Containers[0].EnvFrom = append(p.Spec.Containers[0].EnvFrom, from)
	}
	return p
}

// heard records the pods notified; entered and leave, if set, block each call.
type heard struct {
	uids           []pod.UID
	entered, leave chan struct{}
}

func (h *heard) Changed(uid pod.UID) {
	h.uids = append(h.uids, uid)
	if h.entered != nil {
		h.entered <- struct{}{}
		<-h.leave
	}
}

// Adding, changing and removing an object count as changes.
func TestOnlyPodsThatReferenceAChangedObjectAreNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s, h := newStore(), &heard{}
		go func() { _ = s.Run(ctx, h) }()
		s.Register(userOf("a", "c1", "s1"))
		s.Register(userOf("b", "c2"))
		s.Register(userOf("none"))
		c1, c2, s1 := configMap("c1", "1"), configMap("c2", "1"), secret("s1", "1")
		relabelled := configMap("c2", "1")
		relabelled.ConfigMap.Labels = map[string]string{"new": "label"}
		other := configMap("c1", "1")
		other.ConfigMap.Namespace = "elsewhere"
		binary := configMap("c2", "1")
		binary.ConfigMap.BinaryData = map[string][]byte{"b": {0}}
		typed := secret("s1", "2")
		typed.Secret.Type = "x/y"
		for i, step := range []struct {
			all  []*pod.Object
			want string
		}{
			{[]*pod.Object{c1}, "[a]"},
			{[]*pod.Object{c1}, "[]"},
			{[]*pod.Object{c1, c2, s1}, "[a b]"},
			{[]*pod.Object{c1, relabelled, s1}, "[]"},
			{[]*pod.Object{c1, relabelled, s1, other, configMap("unused", "x")}, "[]"},
			{[]*pod.Object{configMap("c1", "2"), relabelled, s1}, "[a]"},
			{[]*pod.Object{relabelled, secret("s1", "2")}, "[a]"},
			{[]*pod.Object{relabelled, typed}, "[a]"},
			{[]*pod.Object{binary, typed}, "[b]"},
			{nil, "[a b]"},
		} {
			h.uids = nil
			s.Replace(step.all)
			synctest.Wait()
			if got := fmt.Sprint(h.uids); got != step.want {
				t.Errorf("step %d: notified %v, want %v", i, got, step.want)
			}
		}
	})
}

// TestAnObjectIsAsOldAsItsName: an edit leaves its age, be it refused, told by another
// source or of another kind of content; one that was removed and comes back begins anew.
func TestAnObjectIsAsOldAsItsName(t *testing.T) {
	s, began := newStore(), time.Unix(1000, 0)
	at := func(o *pod.Object, minutes int) *pod.Object {
		o.Seen = began.Add(time.Duration(minutes) * time.Minute)
		return o
	}
	fixed := at(secret("s1", "1"), 0)
	fixed.Secret.Immutable = new(true)
	elsewhere := at(configMap("c1", "2"), 9)
	elsewhere.Source, elsewhere.Origin = pod.SourceHTTP, "http://there"
	for i, step := range []struct {
		all  []*pod.Object
		want map[string]int // minutes, by name
	}{
		{[]*pod.Object{at(configMap("c1", "1"), 0), fixed}, map[string]int{"c1": 0, "s1": 0}},
		{[]*pod.Object{at(configMap("c1", "2"), 5), at(secret("s1", "2"), 5), at(configMap("c2", "1"), 5)}, map[string]int{"c1": 0, "s1": 0, "c2": 5}},
		{[]*pod.Object{elsewhere, fixed}, map[string]int{"c1": 0, "s1": 0}},
		{[]*pod.Object{fixed}, map[string]int{"s1": 0}},
		{[]*pod.Object{at(configMap("c1", "2"), 20), fixed}, map[string]int{"c1": 20, "s1": 0}},
	} {
		s.Replace(step.all)
		got := map[string]int{}
		for _, use := range s.List() {
			got[use.Key().Name] = int(use.Since.Sub(began).Minutes())
		}
		if !maps.Equal(got, step.want) {
			t.Errorf("step %d: known since minute %v, want %v", i, got, step.want)
		}
	}
}

func TestRegistrationFollowsThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s, h := newStore(), &heard{}
		go func() { _ = s.Run(ctx, h) }()
		s.Register(userOf("a", "c1"))
		s.Register(userOf("a", "c2"))
		s.Replace([]*pod.Object{configMap("c1", "1")})
		synctest.Wait()
		if len(h.uids) > 0 {
			t.Errorf("an object that the pod no longer names: notified %v", h.uids)
		}
		s.Replace([]*pod.Object{configMap("c2", "1")})
		synctest.Wait()
		s.Unregister("a")
		s.Unregister("unknown")
		s.Replace(nil)
		synctest.Wait()
		if len(h.uids) != 1 || len(s.users) != 0 || len(s.pods) != 0 {
			t.Errorf("notified %v, left %v and %v: want once, and nothing left", h.uids, s.users, s.pods)
		}
	})
}

// A writer of a thousand versions a second is not blocked, and the last version is
// notified.
func TestChangesWhileAListenerIsBusyAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s, h := newStore(), &heard{entered: make(chan struct{}), leave: make(chan struct{})}
		ended := make(chan struct{})
		go func() { _ = s.Run(ctx, h); close(ended) }()
		s.Register(userOf("a", "c1"))
		s.Replace([]*pod.Object{configMap("c1", "first")})
		<-h.entered
		for i := range 1000 {
			s.Replace([]*pod.Object{configMap("c1", fmt.Sprint(i))})
		}
		h.leave <- struct{}{}
		<-h.entered
		if got, err := s.ConfigMap(in("shop"), "c1"); err != nil || got.Data["k"] != "999" {
			t.Errorf("at the second call: got %v, %v, want the last version", got, err)
		}
		h.leave <- struct{}{}
		synctest.Wait()
		if len(h.uids) != 2 {
			t.Errorf("notified %d times, want 2", len(h.uids))
		}
		stop()
		<-ended
	})
}

func TestAMissingObjectIsTheKubeletsError(t *testing.T) {
	s := newStore()
	s.Replace([]*pod.Object{configMap("both", "1"), secret("both", "2")})
	c, err := s.ConfigMap(in("shop"), "both")
	if err != nil || c.Data["k"] != "1" {
		t.Errorf("got %v, %v", c, err)
	}
	sec, err := s.Secret(in("shop"), "both")
	if err != nil || string(sec.Data["k"]) != "2" {
		t.Errorf("got %v, %v", sec, err)
	}
	_, err = s.ConfigMap(in("default"), "both")
	if !errors.Is(err, pod.ErrNotFound) || err.Error() != `configmap "both" not found` {
		t.Errorf("got %v", err)
	}
	_, err = s.Secret(in("shop"), "none")
	if !errors.Is(err, pod.ErrNotFound) || err.Error() != `secret "none" not found` {
		t.Errorf("got %v", err)
	}
}

func TestAnImmutableObjectKeepsItsContentUntilItIsRemoved(t *testing.T) {
	s, yes, no := newStore(), true, false
	at := func(value string, flag *bool) *pod.Object {
		o := secret("s1", value)
		o.Secret.Immutable = flag
		return o
	}
	for i, step := range []struct {
		object   *pod.Object
		want     string
		problems int
	}{
		{at("1", &no), "1", 0}, {at("2", &yes), "2", 0}, {at("topsecret", &yes), "2", 1}, {at("2", nil), "2", 1},
		{at("2", &yes), "2", 0}, {nil, "", 0}, {at("5", &yes), "5", 0},
	} {
		var all []*pod.Object
		if step.object != nil {
			all = append(all, step.object)
		}
		s.Replace(all)
		got := ""
		if sec, err := s.Secret(in("shop"), "s1"); err == nil {
			got = string(sec.Data["k"])
		}
		problems := s.Problems()
		if got != step.want || len(problems) != step.problems {
			t.Errorf("step %d: got %q and problems %v, want %q and %d", i, got, problems, step.want, step.problems)
		}
		for _, p := range problems {
			if p.Origin != "secrets.yaml" || p.Line != 3 || p.Since.IsZero() || strings.Contains(fmt.Sprint(p), "topsecret") {
				t.Errorf("step %d: got problem %+v", i, p)
			}
		}
	}
}

func TestAConfigMapCanBeImmutableToo(t *testing.T) {
	s := newStore()
	fixed := configMap("c1", "1")
	fixed.ConfigMap.Immutable = new(true)
	s.Replace([]*pod.Object{fixed})
	s.Replace([]*pod.Object{configMap("c1", "2")})
	if got, err := s.ConfigMap(in("shop"), "c1"); err != nil || got.Data["k"] != "1" {
		t.Errorf("got %v, %v, want the first content", got, err)
	}
	if got := s.Problems(); len(got) != 1 {
		t.Errorf("got problems %v, want one", got)
	}
}

func TestListsSayWhoUsesWhat(t *testing.T) {
	s := newStore()
	elsewhere := configMap("c1", "1")
	elsewhere.ConfigMap.Namespace = "another"
	s.Replace([]*pod.Object{secret("s1", "1"), configMap("c2", "1"), configMap("c1", "1"), elsewhere})
	s.Register(userOf("b", "c1", "missing"))
	s.Register(userOf("a", "s1", "c1"))
	for _, uid := range []string{"e", "d", "c"} {
		s.Register(userOf(uid, "c2"))
	}
	next := userOf("d2", "c2")
	next.Name = "pod-d" // an edited manifest: its old pod has not ended yet
	s.Register(next)
	var got []string
	for _, u := range s.List() {
		got = append(got, fmt.Sprint(u.Key(), u.Pods))
	}
	want := []string{"ConfigMap another/c1 []", "ConfigMap shop/c1 [shop/pod-a shop/pod-b]", "ConfigMap shop/c2 [shop/pod-c shop/pod-d shop/pod-e]", "Secret shop/s1 [shop/pod-a]"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Contents has only objects that the pod references and that exist.
func TestContentsAreHashesOfWhatPodsSee(t *testing.T) {
	s := newStore()
	s.Register(userOf("a", "c1", "s1", "missing"))
	s.Replace([]*pod.Object{configMap("c1", "1"), secret("s1", "1"), configMap("c2", "1")})
	first := s.Contents("a")
	c1 := pod.ObjectKey{Kind: pod.KindConfigMap, Namespace: "shop", Name: "c1"}
	if len(first) != 2 || first[c1] == 0 {
		t.Errorf("got %v", first)
	}
	s.Replace([]*pod.Object{configMap("c1", "2"), secret("s1", "1")})
	if second := s.Contents("a"); second[c1] == first[c1] {
		t.Error("other content has the same hash")
	}
	s.Replace(nil)
	if gone := s.Contents("a"); len(gone) > 0 {
		t.Errorf("removed objects: got %v", gone)
	}
	s.Replace([]*pod.Object{configMap("c1", "1")})
	if back := s.Contents("a"); back[c1] != first[c1] {
		t.Error("the same content, added again, has another hash")
	}
}

// A podd that starts compares with the hashes that an earlier one recorded.
func TestContentsAreComparableAmongStoresWithTheSameKey(t *testing.T) {
	key := func(b byte) []byte { return slices.Repeat([]byte{b}, HashKeySize) }
	of := func(key []byte, value string) (epoch string, content uint64) {
		s := New(Config{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), HashKey: key})
		s.Register(userOf("a", "s1"))
		s.Replace([]*pod.Object{secret("s1", value)})
		return s.Epoch(), s.Contents("a")[pod.ObjectKey{Kind: pod.KindSecret, Namespace: "shop", Name: "s1"}]
	}
	epoch, content := of(key(1), "x")
	if e, c := of(key(1), "x"); epoch == "" || e != epoch || c != content {
		t.Errorf("the same key: got %s %x, want %s %x", e, c, epoch, content)
	}
	if e, c := of(key(1), "y"); e != epoch || c == content {
		t.Errorf("another content: got %s %x", e, c)
	}
	if e, c := of(key(2), "x"); e == epoch || c == content {
		t.Errorf("another key: got %s %x", e, c)
	}
	for _, none := range [][]byte{nil, key(1)[:HashKeySize-1]} {
		if e, c := of(none, "x"); e != "" || c == content {
			t.Errorf("no key: got %q %x", e, c)
		}
	}
}

// in is a pod of a namespace, from a manifest.
func in(namespace string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
}

// changesOf is podd_object_changes_total of a kind.
func changesOf(t *testing.T, reg *prometheus.Registry, kind string) int {
	t.Helper()
	return int(valueOf(t, reg, "podd_object_changes_total", kind))
}

// valueOf is the value of a metric for one kind of objects; -1 if there is none.
func valueOf(t *testing.T, reg *prometheus.Registry, name, kind string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == kind {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

func TestMetricsCountObjectsAndTheirChanges(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := New(Config{Log: slog.New(slog.DiscardHandler), Metrics: reg})
	for _, kind := range pod.ObjectKinds {
		if got := valueOf(t, reg, "podd_objects", kind); got != 0 {
			t.Errorf("before there are any: got %v objects of kind %s, want 0", got, kind)
		}
	}
	c1, s1 := configMap("c1", "1"), secret("s1", "1")
	for i, step := range []struct {
		all                          []*pod.Object
		configMaps, secrets, changes int
	}{
		{[]*pod.Object{c1, configMap("c2", "1"), s1}, 2, 1, 2},
		{[]*pod.Object{c1, s1}, 1, 1, 3},
		{[]*pod.Object{c1}, 1, 0, 3},
		{[]*pod.Object{configMap("c1", "2")}, 1, 0, 4},
		{nil, 0, 0, 5},
	} {
		s.Replace(step.all)
		c, sec, n := valueOf(t, reg, "podd_objects", "ConfigMap"), valueOf(t, reg, "podd_objects", "Secret"), changesOf(t, reg, "ConfigMap")
		if int(c) != step.configMaps || int(sec) != step.secrets || n != step.changes {
			t.Errorf("step %d: got %v ConfigMaps, %v Secrets and %d changes of ConfigMaps, want %d, %d and %d", i, c, sec, n, step.configMaps, step.secrets, step.changes)
		}
	}
}

func TestAPodThatHasLeftIsNotNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s, h := newStore(), &heard{}
		s.Register(userOf("a", "c1"))
		s.Register(userOf("b", "c1"))
		s.Replace([]*pod.Object{configMap("c1", "1")})
		s.Unregister("a")
		go func() { _ = s.Run(ctx, h) }()
		synctest.Wait()
		if got := fmt.Sprint(h.uids); got != "[b]" {
			t.Errorf("notified %v, want [b]", got)
		}
	})
}

// The age of a problem tells an operator what an edit of a moment ago has caused.
func TestARejectedChangeIsAsOldAsItsFirstAttempt(t *testing.T) {
	s, began := newStore(), time.Unix(1000, 0)
	fixed := func(name, value string, minutes int) *pod.Object {
		o := secret(name, value)
		o.Secret.Immutable, o.Seen = new(true), began.Add(time.Duration(minutes)*time.Minute)
		return o
	}
	s.Replace([]*pod.Object{fixed("s1", "1", 0), fixed("s2", "1", 0)})
	for i, step := range []struct {
		s1, s2 *pod.Object
		want   string // the minutes of the problems of s1 and s2
	}{
		{fixed("s1", "2", 5), fixed("s2", "1", 5), "[5]"},
		{fixed("s1", "3", 9), fixed("s2", "2", 9), "[5 9]"},
		{fixed("s1", "1", 12), fixed("s2", "2", 12), "[9]"},
		{fixed("s1", "2", 15), fixed("s2", "1", 15), "[15]"},
	} {
		s.Replace([]*pod.Object{step.s1, step.s2})
		var got []int
		for _, p := range s.Problems() {
			got = append(got, int(p.Since.Sub(began).Minutes()))
		}
		if fmt.Sprint(got) != step.want {
			t.Errorf("step %d: problems are there since minutes %v, want %v", i, got, step.want)
		}
	}
}
