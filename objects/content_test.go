package objects

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// with applies a change to an object.
func with(o *pod.Object, change func(*pod.Object)) *pod.Object {
	change(o)
	return o
}

func aDriver(attach bool) *pod.Object {
	return &pod.Object{Driver: &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attach}}}
}

func TestEachDifferenceThatAPodSeesIsAChange(t *testing.T) {
	data := func(m map[string]string) func(*pod.Object) { return func(o *pod.Object) { o.ConfigMap.Data = m } }
	secrets := func(m map[string][]byte) func(*pod.Object) { return func(o *pod.Object) { o.Secret.Data = m } }
	for name, c := range map[string]struct {
		before, after *pod.Object
		want          int // changes
	}{
		"a ConfigMap's copy":           {configMap("c", "1"), configMap("c", "1"), 0},
		"a ConfigMap's value":          {configMap("c", "1"), configMap("c", "2"), 1},
		"a ConfigMap's key":            {with(configMap("c", ""), data(map[string]string{"a": "x"})), with(configMap("c", ""), data(map[string]string{"b": "x"})), 1},
		"where a ConfigMap's key ends": {with(configMap("c", ""), data(map[string]string{"a": "bc"})), with(configMap("c", ""), data(map[string]string{"ab": "c"})), 1},
		"what is text in a ConfigMap": {configMap("c", "1"), with(configMap("c", ""), func(o *pod.Object) {
			o.ConfigMap.Data, o.ConfigMap.BinaryData = nil, map[string][]byte{"k": []byte("1")}
		}), 1},
		"a ConfigMap's labels":          {configMap("c", "1"), with(configMap("c", "1"), func(o *pod.Object) { o.ConfigMap.Labels = map[string]string{"a": "b"} }), 0},
		"a Secret's copy":               {secret("s", "1"), secret("s", "1"), 0},
		"a Secret's key":                {with(secret("s", ""), secrets(map[string][]byte{"a": nil})), with(secret("s", ""), secrets(map[string][]byte{"b": nil})), 1},
		"where a Secret's key ends":     {with(secret("s", ""), secrets(map[string][]byte{"a": []byte("bc")})), with(secret("s", ""), secrets(map[string][]byte{"ab": []byte("c")})), 1},
		"a volume's copy":               {aVolume("v"), aVolume("v"), 0},
		"a volume's spec":               {aVolume("v"), aVolume("v", v1.ReadOnlyMany), 1},
		"a volume's labels":             {aVolume("v"), with(aVolume("v"), func(o *pod.Object) { o.Volume.Labels = map[string]string{"a": "b"} }), 1},
		"a claim's copy":                {aClaim("c"), aClaim("c"), 0},
		"a claim's request for storage": {aClaim("c"), with(aClaim("c"), func(o *pod.Object) { o.Claim.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("2Gi") }), 1},
		"a CSIDriver's copy":            {aDriver(true), aDriver(true), 0},
		"a CSIDriver's spec":            {aDriver(true), aDriver(false), 1},
	} {
		reg := prometheus.NewRegistry()
		s := New(Config{Log: slog.New(slog.DiscardHandler), Metrics: reg})
		s.Replace([]*pod.Object{c.before})
		kind := c.before.Key().Kind
		before := changesOf(t, reg, kind)
		s.Replace([]*pod.Object{c.after})
		if got := changesOf(t, reg, kind) - before; got != c.want {
			t.Errorf("%s: got %d changes, want %d", name, got, c.want)
		}
	}
}

// The checkpoints of the pods have these hashes: if the next podd computed others, its start
// would restart pods.
func TestContentsAreThoseOfEarlierVersionsOfPodd(t *testing.T) {
	s := New(Config{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), HashKey: slices.Repeat([]byte{7}, HashKeySize)})
	s.Register(userOf("a", "c1", "s1"))
	both := configMap("c1", "1")
	both.ConfigMap.BinaryData = map[string][]byte{"b": {0, 1}}
	s.Replace([]*pod.Object{both, secret("s1", "1")})
	const epoch = "c2d6b87fccbd994b"
	if got := s.Epoch(); got != epoch {
		t.Errorf("got epoch %s, want %s", got, epoch)
	}
	for kind, want := range map[string]string{pod.KindConfigMap: "3f3d90de9667b8e2", pod.KindSecret: "5d09970955acdb3c"} {
		name := map[string]string{pod.KindConfigMap: "c1", pod.KindSecret: "s1"}[kind]
		if got := fmt.Sprintf("%016x", s.Contents("a")[pod.ObjectKey{Kind: kind, Namespace: "shop", Name: name}]); got != want {
			t.Errorf("%s: got %s, want %s", kind, got, want)
		}
	}
}

// Otherwise whoever reads the hashes could guess what a Secret has.
func TestWithoutAKeyEachStoreHasItsOwnHashes(t *testing.T) {
	of := func() uint64 {
		s := newStore()
		s.Register(userOf("a", "s1"))
		s.Replace([]*pod.Object{secret("s1", "x")})
		return s.Contents("a")[pod.ObjectKey{Kind: pod.KindSecret, Namespace: "shop", Name: "s1"}]
	}
	if a, b := of(), of(); a == b {
		t.Errorf("two stores have the hash %x", a)
	}
}
