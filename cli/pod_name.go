package cli

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/internal/suggest"
	"podd/server"
)

// podName is how a person calls a pod: its name, or its manifest's, to which a
// static pod's has the node's name added; with or without a namespace.
type podName struct{ namespace, name string }

// parsePodName reads name or namespace/name; namespace is that of -n.
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

// query asks the socket for what is of that pod.
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

// find are the pods that are meant: those of that name or, where there are none,
// those whose names begin with it, as kubectl describe has it.
func (n podName) find(all []server.PodInfo) []server.PodInfo {
	var exact, begun []server.PodInfo
	for _, info := range all {
		switch p := info.Pod; {
		case n.matches(p):
			exact = append(exact, info)
		case (n.namespace == "" || n.namespace == p.Namespace) && n.name != "" && strings.HasPrefix(p.Name, n.name):
			begun = append(begun, info)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return begun
}

// concerns says whether the problem is with that pod, or with a manifest of its
// name, in case no pod could be read from it.
func (n podName) concerns(p pod.Problem, node string) bool {
	ns, name, known := strings.Cut(p.Pod, "/")
	if !known {
		file := p.Origin[strings.LastIndex(p.Origin, "/")+1:]
		base, _, _ := strings.Cut(file, ".")
		return base == n.name
	}
	return (n.namespace == "" || n.namespace == ns) && (n.name == name || node != "" && n.name == strings.TrimSuffix(name, "-"+node))
}

// manifestName is the name in a static pod's manifest.
func manifestName(p *v1.Pod) string {
	if p.Spec.NodeName == "" || p.Annotations[pod.AnnotationSource] == string(pod.SourceAPIServer) {
		return p.Name
	}
	return strings.TrimSuffix(p.Name, "-"+p.Spec.NodeName)
}

// known says whether a pod, or a problem, is meant.
func (n podName) known(l server.Listing) bool {
	node := nodeOf(l)
	return slices.ContainsFunc(l.Pods, func(i server.PodInfo) bool { return n.matches(i.Pod) }) ||
		slices.ContainsFunc(l.Problems, func(p pod.Problem) bool { return n.concerns(p, node) })
}

// nodeOf is this node's name, as its pods say it.
func nodeOf(l server.Listing) string {
	for _, info := range l.Pods {
		if info.Pod.Spec.NodeName != "" {
			return info.Pod.Spec.NodeName
		}
	}
	return ""
}

// missing is the error for a name that no pod has: what is wrong with its
// manifest, or which are meant, perhaps.
func (n podName) missing(l server.Listing) error {
	node := nodeOf(l)
	for _, p := range l.Problems {
		if n.concerns(p, node) {
			return fmt.Errorf("no pod %s, since its manifest cannot be used: %s", n, oneLine(p.String()))
		}
	}
	return n.unknown(l.Pods)
}

// unknown is the error for a name that no pod has: which are meant, perhaps.
func (n podName) unknown(pods []server.PodInfo) error {
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
