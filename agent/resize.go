package agent

import (
	"context"
	"errors"
	"fmt"

	"podd/agent/plan"
	"podd/internal/pod"
)

// resize brings running containers to the resources that the spec names.
func (w *worker) resize(ctx context.Context, d *pod.Desired, step *plan.Step) error {
	var errs []error
	for _, r := range step.Resize {
		if err := ignoreNotFound(w.agent.cfg.Containers.UpdateContainer(ctx, r.ID, d.Pod, r.Container)); err != nil {
			errs = append(errs, fmt.Errorf("resize container %s: %w", r.Container.Name, err))
		}
	}
	return errors.Join(errs...)
}
