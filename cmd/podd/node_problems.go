package main

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// reasonManifest is the kubelet's reason for a pod of a manifest that is not
// valid (pkg/kubelet/events, FailedValidation).
const reasonManifest = "FailedValidation"

// reasonWarning is podd's own, for a manifest that runs and is probably not
// what its writer meant.
const reasonWarning = "ManifestWarning"

// tellProblems makes an event of each new problem of a manifest. The log, the
// metric and podd ps have it from podconfig itself.
func (n *node) tellProblems(ctx context.Context) error {
	changes, stop := n.config.Changes()
	defer stop()
	told := map[string]bool{}
	for {
		now := map[string]bool{}
		for _, p := range n.config.Problems() {
			text := p.String()
			now[text] = true
			if !told[text] {
				namespace, name := concerned(p)
				reason := reasonManifest
				if p.Warning {
					reason = reasonWarning
				}
				n.recorder.ManifestEvent(namespace, name, v1.EventTypeWarning, reason, text)
			}
		}
		told = now
		select {
		case <-changes:
		case <-ctx.Done():
			return nil
		}
	}
}

// concerned is the pod that a problem is about, or else its manifest.
func concerned(p pod.Problem) (namespace, name string) {
	if namespace, name, ok := strings.Cut(p.Pod, "/"); ok {
		return namespace, name
	}
	return "", p.Origin
}

// problems are those of manifests, of image archives, of registry credentials and
// of mounts that stay.
func (n *node) problems() []pod.Problem {
	all := n.config.Problems()
	all = append(all, n.archives.Problems()...)
	all = append(all, n.keep.keyring.Problems()...)
	for _, d := range n.volumes.Debts() {
		all = append(all, pod.Problem{Origin: d.Path, Message: d.Message, Since: d.Since})
	}
	return all
}
