package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestTheGatesOfAnApiserverAreNotThoseOfItsNode: a pod with a field that the node does not
// honour runs and is told. What the node has allocated is at a path that a gate of its own
// opens.
func TestTheGatesOfAnApiserverAreNotThoseOfItsNode(t *testing.T) {
	m := joinWith(t, func(config map[string]any) {
		config["featureGates"] = map[string]bool{"KubeletAllocatedPodsEndpoint": true}
	}, "--feature-gates=EmptyDirVolumeMode=true")
	m.bind(replaced(m, m.resting("moded"), "  volumes:\n", "  volumes:\n  - {name: scratch, emptyDir: {mode: 488}}\n"))
	m.shown("moded", "ready", isReady)
	m.told("moded", "UnsupportedField", "spec.volumes[0].emptyDir.mode has no effect on this node", "switch on the feature gate EmptyDirVolumeMode")

	m.eventually("the node shows what it has allocated", func(ctx context.Context) error {
		text, err := m.server.Client().Raw(ctx, "/api/v1/nodes/"+m.podd.NodeName()+"/proxy/allocatedPods")
		if err != nil {
			return err
		}
		var list v1.PodList
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Name != "moded" || list.Items[0].Status.Phase != "" {
			return fmt.Errorf("got %.500s", text)
		}
		return nil
	})
	for path, want := range map[string]string{"default/moded": `"name":"moded"`, "default/none": "no such object"} {
		text, err := m.server.Client().Raw(t.Context(), "/api/v1/nodes/"+m.podd.NodeName()+"/proxy/allocatedPods/"+path)
		if got := fmt.Sprint(string(text), err); !strings.Contains(got, want) {
			t.Errorf("%s: got %.500s, want %s", path, got, want)
		}
	}
	m.delete("moded")
	m.gone("moded")
}
