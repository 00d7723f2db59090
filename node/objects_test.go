package node

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/objects"
)

func TestListsOfObjectsHaveKeysAndNoValues(t *testing.T) {
	n := &Node{objects: objects.New(objects.Config{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})}
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "one", Annotations: map[string]string{"last-applied": "topsecret"}}
	n.objects.Replace([]*pod.Object{
		{Secret: &v1.Secret{ObjectMeta: meta, Type: "Opaque", Data: map[string][]byte{"password": []byte("topsecret")}}, Origin: "/m/keys.yaml", Line: 7},
		{ConfigMap: &v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"z": "topsecret", "a": ""}, BinaryData: map[string][]byte{"m": []byte("topsecret")}}},
	})
	n.objects.Register(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}, Spec: v1.PodSpec{
		ImagePullSecrets: []v1.LocalObjectReference{{Name: "one"}},
	}})
	b, err := json.Marshal(n.listObjects())
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(string(b), `,"seen":"0001-01-01T00:00:00Z"`, "")
	want := `[{"kind":"ConfigMap","namespace":"shop","name":"one","keys":["a","m","z"],"usedBy":null},` +
		`{"kind":"Secret","namespace":"shop","name":"one","type":"Opaque","keys":["password"],"usedBy":["shop/web"],"origin":"/m/keys.yaml","line":7}]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestAnEditLeavesTheAgeOfAnObject that podd get shows.
func TestAnEditLeavesTheAgeOfAnObject(t *testing.T) {
	n := &Node{objects: objects.New(objects.Config{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})}
	first := time.Unix(1000, 0)
	for i, value := range []string{"1", "2"} {
		n.objects.Replace([]*pod.Object{{
			ConfigMap: &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "one"}, Data: map[string]string{"k": value}},
			Seen:      first.Add(time.Duration(i) * time.Hour),
		}})
		if got := n.listObjects()[0].Seen; !got.Equal(first) {
			t.Errorf("version %s: known since %v, want %v", value, got, first)
		}
	}
}
