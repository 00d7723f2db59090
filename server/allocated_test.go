package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestAllocatedPodsAreThoseOfTheNodeWithoutTheirStatus: with the resources that the node
// allocated, which need not be those of /pods.
func TestAllocatedPodsAreThoseOfTheNodeWithoutTheirStatus(t *testing.T) {
	a, b := aPod("a", runs), aPod("b", waits)
	a.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}
	h, _, _ := kubeletOf(t, func(k *Kubelet) { k.AllocatedPods = func() []*v1.Pod { return []*v1.Pod{a, b} } })
	code, body := asked(h, http.MethodGet, "/allocatedPods", "")
	var list v1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil || code != http.StatusOK {
		t.Fatalf("%d %q: %v", code, body, err)
	}
	if list.Kind != "PodList" || len(list.Items) != 2 || list.Items[0].Spec.Containers[0].Resources.Requests.Cpu().String() != "250m" ||
		len(list.Items[0].Status.ContainerStatuses) > 0 || list.Items[0].Status.Phase != "" {
		t.Errorf("got %s", body)
	}
	if len(a.Status.ContainerStatuses) == 0 {
		t.Error("the pod itself was changed")
	}
	at := "/allocatedPods/" + a.Namespace + "/"
	for path, want := range map[string]struct {
		code int
		has  string
	}{
		at + "a":                            {200, `"kind":"Pod"`},
		at + "a/" + string(a.UID):           {200, `"cpu":"250m"`},
		at + "a/other":                      {404, "pod not found"},
		at + "c":                            {404, "pod not found"},
		"/allocatedPods/elsewhere/a":        {404, "pod not found"},
		"/allocatedPods/" + a.Namespace:     {404, ""},
		at + "a/" + string(a.UID) + "/more": {404, ""},
	} {
		if code, body := asked(h, http.MethodGet, path, ""); code != want.code || !strings.Contains(body, want.has) {
			t.Errorf("%s: got %d %q, want %d with %q", path, code, body, want.code, want.has)
		}
	}
	if code, _ := asked(h, http.MethodPost, "/allocatedPods", ""); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: got %d", code)
	}
	h, _, _ = kubeletOf(t, nil)
	if code, _ := asked(h, http.MethodGet, "/allocatedPods", ""); code != http.StatusNotFound {
		t.Errorf("without the feature gate: got %d", code)
	}
}
