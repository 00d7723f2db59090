package node

import (
	"context"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// reasonManifest is the kubelet's reason for a pod with an invalid manifest
// (pkg/kubelet/events, FailedValidation).
const reasonManifest = "FailedValidation"

// reasonWarning is podd's own reason, for a manifest that runs but probably not as its author
// meant.
const reasonWarning = "ManifestWarning"

// recordProblems emits an event for each new problem of a manifest. podconfig itself informs the
// log, the metric and podd ps.
func (n *Node) recordProblems(ctx context.Context) error {
	changes, stop := n.podConfig.Changes()
	defer stop()
	recorded := map[string]bool{}
	for {
		now := map[string]bool{}
		for _, p := range n.podConfig.Problems() {
			text := p.String()
			now[text] = true
			if !recorded[text] {
				namespace, name := problemSubject(p)
				reason := reasonManifest
				if p.Warning {
					reason = reasonWarning
				}
				n.recorder.ManifestEvent(namespace, name, v1.EventTypeWarning, reason, text)
			}
		}
		recorded = now
		select {
		case <-changes:
		case <-ctx.Done():
			return nil
		}
	}
}

// problemSubject returns the pod that a problem is about, or else the manifest.
func problemSubject(p pod.Problem) (namespace, name string) {
	if namespace, name, ok := strings.Cut(p.Pod, "/"); ok {
		return namespace, name
	}
	return "", p.Origin
}

// problems collects the problems of manifests, registry credentials, image archives and pending
// unmounts. Parts that are built after the runtime has responded add their own.
type problems struct {
	mu        sync.Mutex
	listFuncs []func() []pod.Problem // guarded by mu
}

// add adds a function that returns problems.
func (p *problems) add(of func() []pod.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listFuncs = append(p.listFuncs, of)
}

func (p *problems) list() []pod.Problem {
	p.mu.Lock()
	of := slices.Clone(p.listFuncs)
	p.mu.Unlock()
	var all []pod.Problem
	for _, list := range of {
		all = append(all, list()...)
	}
	return all
}

// pendingUnmounts returns the mounts that could not be unmounted yet.
func (n *runtimeParts) pendingUnmounts() []pod.Problem {
	var all []pod.Problem
	for _, d := range n.volumes.PendingUnmounts() {
		all = append(all, pod.Problem{Origin: d.Path, Message: d.Message, Since: d.Since})
	}
	return all
}
