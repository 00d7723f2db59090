package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"podd/server"
)

// completionTimeout is short because the shell's prompt blocks: no completions are better than
// late ones.
const completionTimeout = time.Second

// CompletePods returns the names of the node's pods that begin with toComplete. An empty
// namespace means all namespaces. Once the user has typed a slash, the names have the form
// namespace/name. It returns none if podd does not respond within a second.
func CompletePods(ctx context.Context, stateDir, namespace, toComplete string) []string {
	var names []string
	for _, info := range podsToComplete(ctx, stateDir) {
		p := info.Pod
		name := p.Name
		if strings.Contains(toComplete, "/") {
			name = p.Namespace + "/" + p.Name
		}
		if (namespace == "" || namespace == p.Namespace) && strings.HasPrefix(name, toComplete) {
			names = append(names, name)
		}
	}
	return names
}

// CompleteNamespaces returns the namespaces of the node's pods, or none if podd
// does not respond within a second.
func CompleteNamespaces(ctx context.Context, stateDir string) []string {
	var all []string
	for _, info := range podsToComplete(ctx, stateDir) {
		all = append(all, info.Pod.Namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func podsToComplete(ctx context.Context, stateDir string) []server.PodInfo {
	ctx, stop := context.WithTimeout(ctx, completionTimeout)
	defer stop()
	l, err := newClient(stateDir).listPods(ctx)
	if err != nil {
		return nil
	}
	return l.Pods
}
