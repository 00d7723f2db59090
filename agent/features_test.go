package agent_test

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/agent"
	"podd/internal/pod"
)

// TestAChangeThatThisNodeDoesNotSupportIsReported: once, for a pod of an apiserver, and the pod
// runs on.
func TestAChangeThatThisNodeDoesNotSupportIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		s.play("stop-agent")
		s.sources = []pod.Source{pod.SourceFile, pod.SourceHTTP, pod.SourceAPIServer}
		s.edit = func(_ context.Context, _ *podd, cfg *agent.Config) {
			cfg.MissingFeatures = func(before, after *v1.Pod) []string {
				if before.Spec.Containers[0].Image == after.Spec.Containers[0].Image {
					return nil
				}
				return []string{"OneFeature", "Another"}
			}
		}
		s.files["bound.yaml"] = []byte("metadata: {name: bound}\nspec: {containers: [{name: web, image: v1}]}")
		s.play("start-agent; speak api; apply bound.yaml api; sleep 1s; expect bound/web running; expect bound event:FailedNodeDeclaredFeaturesCheck=0")
		s.files["bound.yaml"] = []byte("metadata: {name: bound}\nspec: {containers: [{name: web, image: v2}]}")
		s.play("update bound.yaml; sleep 1m; expect bound/web running; expect bound event:FailedNodeDeclaredFeaturesCheck=1")
		s.play("sleep 1h; expect bound event:FailedNodeDeclaredFeaturesCheck=1")
	})
}
