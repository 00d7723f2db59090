package manifest

import (
	"fmt"
	"slices"

	"podd/internal/pod"
	"podd/internal/suggest"
)

// found are the objects of some manifests, with their keys.
type found struct {
	keys map[pod.ObjectKey]map[string]bool
	// broken are the places of those that there would be, by their names as people see
	// them.
	broken map[string]string
	// budget is what may be spent yet on comparing names with one that is not there,
	// in steps: two names cost the product of their lengths.
	budget int
}

// maxSteps of some nanoseconds each keep the search for what was meant below a second.
const maxSteps = 100_000_000

func newFound(objects []*pod.Object, problems []pod.Problem) *found {
	f := &found{keys: make(map[pod.ObjectKey]map[string]bool, len(objects)), broken: map[string]string{}, budget: maxSteps}
	for i := range problems {
		if p := &problems[i]; p.Object != "" && !p.Warning && f.broken[p.Object] == "" {
			f.broken[p.Object] = p.Where()
		}
	}
	for _, o := range objects {
		f.keys[o.Key()] = keysOf(o)
	}
	return f
}

func keysOf(o *pod.Object) map[string]bool {
	keys := make(map[string]bool)
	if o.Secret != nil {
		for key := range o.Secret.Data {
			keys[key] = true
		}
		return keys
	}
	for key := range o.ConfigMap.Data {
		keys[key] = true
	}
	for key := range o.ConfigMap.BinaryData {
		keys[key] = true
	}
	return keys
}

// missing says what of a need is not there; "" where all is.
func (f *found) missing(n need) (message, hint string) {
	keys, there := f.keys[n.object]
	switch {
	case !there:
		return fmt.Sprintf("none of these files has the %s: the pod would wait for it", shorten(n.object.String())), f.elsewhere(n.object)
	case n.key != "" && !keys[n.key]:
		names := make([]string, 0, len(keys))
		for key := range keys {
			names = append(names, key)
		}
		return fmt.Sprintf("the %s has no key %q: the pod would wait for it", shorten(n.object.String()), shorten(n.key)),
			f.meant(n.key, names, "add it, or make the reference optional")
	}
	return "", ""
}

// elsewhere is the remedy for an object that is not there: what it may be meant to
// be, of the pod's namespace or another.
func (f *found) elsewhere(of pod.ObjectKey) string {
	if at := f.broken[of.String()]; at != "" {
		return fmt.Sprintf("the one at %s is broken: fix that", at)
	}
	var names, namespaces []string
	for other := range f.keys {
		if other.Kind == of.Kind && other.Namespace == of.Namespace {
			names = append(names, other.Name)
		}
		if other.Kind == of.Kind && other.Name == of.Name {
			namespaces = append(namespaces, other.Namespace)
		}
	}
	if len(namespaces) > 0 {
		namespace := slices.Min(namespaces)
		return fmt.Sprintf("there is one in the namespace %q, and a pod sees those of its own only: write metadata: namespace: %s there", namespace, of.Namespace)
	}
	return f.meant(of.Name, names, "write one, or make the reference optional")
}

// meant asks whether one of the names was meant, as long as that costs little.
func (f *found) meant(written string, names []string, otherwise string) string {
	for _, name := range names {
		f.budget -= len(written) * len(name)
	}
	if f.budget < 0 {
		return otherwise
	}
	slices.Sort(names)
	if name := suggest.Name(written, names); name != "" {
		return fmt.Sprintf("did you mean %q?", name)
	}
	return otherwise
}
