package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podd/internal/near"
	"podd/internal/pod"
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
		return podName{}, &exitError{exitUsage, fmt.Errorf("%q: give NAME or NAMESPACE/NAME", arg)}
	}
	if namespace != "" && namespace != ns {
		return podName{}, &exitError{exitUsage, fmt.Errorf("%s is not of namespace %s: leave out one of the two", arg, namespace)}
	}
	return podName{ns, name}, nil
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
		if least := max(1, len(n.name)/3); min(near.Distance(n.name, p.Name), near.Distance(n.name, manifestName(p))) <= least ||
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

// listPods asks the daemon once.
func listPods(ctx context.Context, stateDir string) (server.Listing, error) {
	var l server.Listing
	err := newClient(stateDir).get(ctx, "/podd/v1/pods", url.Values{}, func(decode func(any) error) error { return decode(&l) })
	return l, err
}

// askForCompletion is listPods for a shell that waits with its prompt: nothing
// rather than late.
func askForCompletion(cmd *cobra.Command, stateDir string) []server.PodInfo {
	ctx, stop := context.WithTimeout(cmd.Context(), time.Second)
	defer stop()
	l, err := listPods(ctx, stateDir)
	if err != nil {
		return nil
	}
	return l.Pods
}

// completePods completes names of pods that run now: of the namespace of -n, or
// as namespace/name once a slash was typed.
func completePods(stateDir, namespace *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, written string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, info := range askForCompletion(cmd, *stateDir) {
			p := info.Pod
			name := p.Name
			if strings.Contains(written, "/") {
				name = p.Namespace + "/" + p.Name
			}
			if (*namespace == "" || *namespace == p.Namespace) && strings.HasPrefix(name, written) && !slices.Contains(args, name) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeOnePod is completePods for commands that take one.
func completeOnePod(stateDir, namespace *string) cobra.CompletionFunc {
	many := completePods(stateDir, namespace)
	return func(cmd *cobra.Command, args []string, written string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return many(cmd, args, written)
	}
}

// addNamespace gives a command -n and -A.
func addNamespace(cmd *cobra.Command, stateDir, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", "", "only of this `namespace`")
	cmd.Flags().BoolP("all-namespaces", "A", false, "of all namespaces, which is the default")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	_ = cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		var all []string
		for _, info := range askForCompletion(cmd, *stateDir) {
			all = append(all, info.Pod.Namespace)
		}
		slices.SortFunc(all, cmp.Compare[string])
		return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
	}) // the flag exists
}
