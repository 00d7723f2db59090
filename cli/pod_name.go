package cli

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/internal/suggest"
	"podd/server"
)

// podName is a pod's name as given on the command line, with or without a namespace. It is the
// pod's own name, or the one in its manifest: for a static pod, podd adds the node's name to
// that.
type podName struct{ namespace, name string }

// parsePodName parses name or namespace/name. namespace is the value of -n.
func parsePodName(arg, namespace string) (podName, error) {
	ns, name, qualified := strings.Cut(arg, "/")
	if !qualified {
		return podName{namespace, arg}, nil
	}
	if ns == "" || name == "" || strings.Contains(name, "/") {
		return podName{}, UsageErrorf("%q: give NAME or NAMESPACE/NAME", arg)
	}
	if namespace != "" && namespace != ns {
		return podName{}, UsageErrorf("%s is not in namespace %s: leave out one of the two", arg, namespace)
	}
	return podName{ns, name}, nil
}

func parsePodNames(args []string, namespace string) ([]podName, error) {
	var names []podName
	for _, arg := range args {
		name, err := parsePodName(arg, namespace)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// query selects the pod in a request to the socket.
func (n podName) query() url.Values {
	return url.Values{"name": {n.name}, "namespace": {n.namespace}}
}

func (n podName) String() string {
	if n.namespace != "" {
		return printable(n.namespace + "/" + n.name)
	}
	return printable(n.name)
}

func (n podName) matches(p *v1.Pod) bool {
	return (n.namespace == "" || n.namespace == p.Namespace) && (n.name == p.Name || n.name == manifestName(p))
}

// find returns the pods of that name. If there are none, it returns those with the name as a
// prefix, as kubectl describe does.
func (n podName) find(all []server.PodInfo) []server.PodInfo {
	var exact, prefixed []server.PodInfo
	for _, info := range all {
		switch p := info.Pod; {
		case n.matches(p):
			exact = append(exact, info)
		case (n.namespace == "" || n.namespace == p.Namespace) && n.name != "" && strings.HasPrefix(p.Name, n.name):
			prefixed = append(prefixed, info)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return prefixed
}

// matchesProblem reports whether the problem is about that pod, or about a manifest of its name
// that yielded no pod.
func (n podName) matchesProblem(p pod.Problem, node string) bool {
	ns, name, qualified := strings.Cut(p.Pod, "/")
	if !qualified {
		file := p.Origin[strings.LastIndex(p.Origin, "/")+1:]
		base, _, _ := strings.Cut(file, ".")
		return base == n.name
	}
	return (n.namespace == "" || n.namespace == ns) && (n.name == name || node != "" && n.name == strings.TrimSuffix(name, "-"+node))
}

// manifestName returns the name in a static pod's manifest.
func manifestName(p *v1.Pod) string {
	if p.Spec.NodeName == "" || p.Annotations[pod.AnnotationSource] == string(pod.SourceAPIServer) {
		return p.Name
	}
	return strings.TrimSuffix(p.Name, "-"+p.Spec.NodeName)
}

// matchesAny reports whether n selects a pod or a problem.
func (n podName) matchesAny(l server.Listing) bool {
	node := nodeOf(l)
	return slices.ContainsFunc(l.Pods, func(i server.PodInfo) bool { return n.matches(i.Pod) }) ||
		slices.ContainsFunc(l.Problems, func(p pod.Problem) bool { return n.matchesProblem(p, node) })
}

// nodeOf returns this node's name, taken from its pods.
func nodeOf(l server.Listing) string {
	for _, info := range l.Pods {
		if info.Pod.Spec.NodeName != "" {
			return info.Pod.Spec.NodeName
		}
	}
	return ""
}

// notFound returns the error for a name that no pod has. It contains the problem of its
// manifest, or suggestions.
func (n podName) notFound(l server.Listing) error {
	node := nodeOf(l)
	for _, p := range l.Problems {
		if n.matchesProblem(p, node) {
			return fmt.Errorf("no pod %s, since its manifest cannot be used: %s", n, oneLine(p.String()))
		}
	}
	return n.notFoundAmong(l.Pods)
}

// notFoundAmong returns the error for a name that no pod has, with suggestions.
func (n podName) notFoundAmong(pods []server.PodInfo) error {
	if len(pods) == 0 {
		return fmt.Errorf("no pod %s: this node has no pods", n)
	}
	var meant, all []string
	for _, info := range pods {
		p := info.Pod
		full := p.Namespace + "/" + p.Name
		all = append(all, full)
		if least := max(1, len(n.name)/3); min(suggest.Distance(n.name, p.Name), suggest.Distance(n.name, manifestName(p))) <= least ||
			len(n.name) > 2 && strings.Contains(p.Name, n.name) {
			meant = append(meant, full)
		}
	}
	const most = 5
	if len(meant) > 0 && len(meant) <= most {
		return fmt.Errorf("no pod %s: did you mean %s?", n, printable(strings.Join(meant, " or ")))
	}
	more := ""
	if len(all) > most {
		all, more = all[:most], fmt.Sprintf(" and %d more, see podd ps", len(all)-most)
	}
	return fmt.Errorf("no pod %s: this node has %s%s", n, printable(strings.Join(all, ", ")), more)
}

// selectPod returns the pod for a command, by its name as given on the command line.
func (c *client) selectPod(ctx context.Context, arg, namespace string) (server.PodInfo, error) {
	name, err := parsePodName(arg, namespace)
	if err != nil {
		return server.PodInfo{}, err
	}
	all, err := c.listPods(ctx)
	if err != nil {
		return server.PodInfo{}, err
	}
	return name.selectOne(all)
}

// selectOne returns the only pod that n selects. If there are two generations of a pod, it
// returns the newer.
func (n podName) selectOne(l server.Listing) (server.PodInfo, error) {
	found := n.find(l.Pods)
	if len(found) > 1 {
		found = slices.DeleteFunc(found, func(i server.PodInfo) bool { return i.Pod.DeletionTimestamp != nil })
	}
	switch len(found) {
	case 0:
		return server.PodInfo{}, n.notFound(l)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, info := range found {
		names = append(names, info.Pod.Namespace+"/"+info.Pod.Name)
	}
	return server.PodInfo{}, fmt.Errorf("%s means %d pods: give one of %s", n, len(found), printable(strings.Join(names, ", ")))
}
