package apiserver

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// An apiserver of a later version sends pods with fields that podd does not know: they run,
// and as podd writes patches of statuses only, nothing of them is lost in the cluster.
func TestPodsWithFieldsOfALaterVersionAreFollowed(t *testing.T) {
	pod := func(name, version string) *v1.Pod {
		return &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "u", ResourceVersion: version},
			Spec:       v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "i"}}}}
	}
	bookmark := pod("", "2")
	bookmark.Namespace, bookmark.UID, bookmark.Spec = "", "", v1.PodSpec{}
	bookmark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	for encoding, event := range map[string]struct {
		contentType string
		encode      func(kind string, p *v1.Pod) []byte
	}{
		"JSON": {"application/json", func(kind string, p *v1.Pod) []byte {
			text, err := json.Marshal(p)
			var o map[string]any
			if err == nil {
				err = json.Unmarshal(text, &o)
			}
			if err != nil {
				t.Fatal(err)
			}
			spec := o["spec"].(map[string]any)
			spec["fieldOfTomorrow"] = map[string]any{"deep": []any{1, "x", nil}}
			if containers, ok := spec["containers"].([]any); ok && len(containers) > 0 {
				containers[0].(map[string]any)["restartPolicyRulesOfTomorrow"] = []any{"Sometimes"}
			}
			text, err = json.Marshal(map[string]any{"type": kind, "object": o})
			if err != nil {
				t.Fatal(err)
			}
			return append(text, '\n')
		}},
		"protobuf": {"application/vnd.kubernetes.protobuf;stream=watch", func(kind string, p *v1.Pod) []byte {
			raw, err := p.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			raw = binary.AppendUvarint(raw, 9999<<3|2) // a field of another number, with four bytes
			raw = append(raw, 4, 'n', 'e', 'x', 't')
			object, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: raw}).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			frame, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"), object...)}}).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
		}},
	} {
		t.Run(encoding, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("watch") == "" {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				w.Header().Set("Content-Type", event.contentType)
				_, _ = w.Write(event.encode("ADDED", pod("web", "1")))
				_, _ = w.Write(event.encode("BOOKMARK", bookmark))
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}))
			t.Cleanup(server.Close)
			got := followed(t, server)
			select {
			case pods := <-got:
				if len(pods) != 1 || pods[0].Name != "web" || len(pods[0].Spec.Containers) != 1 || pods[0].Spec.Containers[0].Image != "i" {
					t.Errorf("got %s", fmt.Sprint(pods))
				}
			case <-time.After(30 * time.Second):
				t.Error("the pod did not arrive")
			}
		})
	}
}
