package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/agent"
	"podd/internal/pod"
)

// crowded is a node that has no room for the volumes of a pod called full.
type crowded struct {
	agent.Volumes
	agent.Admitter
	mu       sync.Mutex
	rejected []string
}

func (c *crowded) Ensure(ctx context.Context, p *v1.Pod) (pod.VolumeState, error) {
	if strings.HasPrefix(p.Name, "full") {
		return pod.VolumeState{}, pod.WithReason("FailedMount", fmt.Errorf("disk: %w: no slots", pod.ErrAttachLimit))
	}
	return c.Volumes.Ensure(ctx, p)
}

func (c *crowded) Admit(*v1.Pod, []*v1.Pod) pod.Verdict { return pod.Verdict{} }

func (c *crowded) CountRejection(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rejected = append(c.rejected, reason)
}

// TestAPodForWhoseVolumesTheNodeHasNoRoomFails for good, so that its controller makes
// another one, elsewhere (KEP-4876).
func TestAPodForWhoseVolumesTheNodeHasNoRoomFails(t *testing.T) {
	inBubble(t, func(t *testing.T, s *scenario) {
		c := &crowded{}
		s.edit = func(_ context.Context, _ *podd, cfg *agent.Config) {
			c.Volumes = cfg.Volumes
			cfg.Volumes, cfg.Admitter = c, c
		}
		s.files["full.yaml"] = []byte("metadata: {name: full}\nspec: {containers: [{name: web, image: web}]}")
		s.play("restart-agent; speak http; apply full.yaml; sleep 1m; expect full phase=Failed reason=VolumeAttachmentLimitExceeded event:VolumeAttachmentLimitExceeded=1; expect full/web started=0")
		const want = "Node has reached its volume attachment limit, rejecting pod. disk: the node has no room for another volume of this driver: no slots"
		if r := s.reported("full"); r.Message != "Pod was rejected: "+want {
			t.Errorf("the message is %q", r.Message)
		}
		if s.count("full", "VolumeAttachmentLimitExceeded: "+want) != 1 {
			t.Errorf("events: got %v", s.events)
		}
		if len(c.rejected) != 1 || c.rejected[0] != pod.ReasonAttachLimit {
			t.Errorf("counted are %q", c.rejected)
		}
		s.play("restart-agent; speak http; sleep 1h; expect full phase=Failed reason=VolumeAttachmentLimitExceeded; expect full/web started=0; expect shop/web running; remove full; sleep 1s; expect full gone")
		if len(c.rejected) != 1 {
			t.Errorf("counted again: %q", c.rejected)
		}
	})
}
