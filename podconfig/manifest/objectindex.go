package manifest

import (
	"fmt"
	"slices"

	"podd/internal/pod"
	"podd/internal/suggest"
	"podd/podconfig/manifest/advice"
)

// objectIndex has the objects of some manifests, with their keys.
type objectIndex struct {
	keys map[pod.ObjectKey]map[string]int
	// broken has the locations of objects that cannot be used, by their names as people
	// see them.
	broken map[string]string
	// budget is what may be spent yet on comparing names with one that is not there,
	// in steps: two names cost the product of their lengths.
	budget int
}

// maxSteps of some nanoseconds each keep the search for what was meant below a second.
const maxSteps = 100_000_000

func newObjectIndex(objects []*pod.Object, problems []pod.Problem) *objectIndex {
	f := &objectIndex{keys: make(map[pod.ObjectKey]map[string]int, len(objects)), broken: map[string]string{}, budget: maxSteps}
	for i := range problems {
		if p := &problems[i]; p.Object != "" && !p.Warning && f.broken[p.Object] == "" {
			f.broken[p.Object] = p.Location()
		}
	}
	for _, o := range objects {
		f.keys[o.Key()] = sizes(o)
	}
	return f
}

// missingObject is about an object that does not exist.
func (f *objectIndex) missingObject(n Need) (message, hint, example string) {
	message = fmt.Sprintf("none of these files has the %s: the pod would wait for it", advice.Shorten(n.Object.String()))
	if n.ImagePull {
		message = fmt.Sprintf("none of these files has the %s: images are pulled without it", advice.Shorten(n.Object.String()))
	}
	hint, example = f.objectHint(n)
	return message, hint, example
}

// neededObject is about an object that is not in a file, and may be in another.
func (f *objectIndex) neededObject(n Need) (message, hint, example string) {
	message = "needs: " + advice.Shorten(n.Object.String())
	if n.Key != "" {
		message += ", with the key " + advice.Shorten(n.Key)
	}
	hint, example = f.objectHint(n)
	if hint == writeOneHint {
		hint = "" // it may be written
	}
	return message, hint, example
}

// missingKey is about an object without the key that is needed.
func (f *objectIndex) missingKey(n Need) (message, hint string) {
	names := make([]string, 0, len(f.keys[n.Object]))
	for key := range f.keys[n.Object] {
		names = append(names, key)
	}
	return fmt.Sprintf("the %s has no key %q: the pod would wait for it", advice.Shorten(n.Object.String()), advice.Shorten(n.Key)),
		f.suggestName(n.Key, names, "add it, or make the reference optional")
}

// writeOneHint is the remedy for an object that has no other.
const writeOneHint = "write one, or make the reference optional"

// objectHint is the remedy for an object that is not there: what it may be meant to
// be, of the pod's namespace or another; and an example, where it takes one.
func (f *objectIndex) objectHint(n Need) (hint, example string) {
	of := n.Object
	if at := f.broken[of.String()]; at != "" {
		return fmt.Sprintf("the one at %s is broken: fix that", at), ""
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
		return fmt.Sprintf("there is one in the namespace %q, and a pod sees those of its own only: write metadata: namespace: %s there", namespace, of.Namespace), ""
	}
	if hint := f.suggestName(of.Name, names, ""); hint != "" {
		return hint, ""
	}
	switch {
	case n.ImagePull:
		return "write one of type kubernetes.io/dockerconfigjson, or remove it from imagePullSecrets", ""
	case of.Kind != pod.KindPersistentVolumeClaim:
		return writeOneHint, ""
	}
	example = f.claimExample(of)
	if example == "" {
		return "write one, and a PersistentVolume for it to have", ""
	}
	return "write it, and a PersistentVolume for it to have, with the size and the directory that you want:", example
}

// claimExample is a claim of that name and its volume.
func (f *objectIndex) claimExample(key pod.ObjectKey) string {
	claim := ExampleClaim(key.Namespace, key.Name)
	volume := ExampleVolume(claim, func(name string) bool {
		_, taken := f.keys[pod.ObjectKey{Kind: pod.KindPersistentVolume, Name: name}]
		return taken
	})
	if volume == nil {
		return ""
	}
	return ExampleManifest(volume, claim)
}

// suggestName asks whether one of the names was meant, as long as that costs little.
func (f *objectIndex) suggestName(written string, names []string, otherwise string) string {
	for _, name := range names {
		f.budget -= len(written) * len(name)
	}
	if f.budget < 0 {
		return otherwise
	}
	slices.Sort(names)
	if name := suggest.Closest(written, names); name != "" {
		return fmt.Sprintf("did you mean %q?", name)
	}
	return otherwise
}
