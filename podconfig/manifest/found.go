package manifest

import (
	"fmt"
	"slices"

	"podd/internal/pod"
	"podd/internal/suggest"
	"podd/podconfig/manifest/advice"
)

// found are the objects of some manifests, with their keys.
type found struct {
	keys map[pod.ObjectKey]map[string]int
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
	f := &found{keys: make(map[pod.ObjectKey]map[string]int, len(objects)), broken: map[string]string{}, budget: maxSteps}
	for i := range problems {
		if p := &problems[i]; p.Object != "" && !p.Warning && f.broken[p.Object] == "" {
			f.broken[p.Object] = p.Where()
		}
	}
	for _, o := range objects {
		f.keys[o.Key()] = sizes(o)
	}
	return f
}

// nowhere is about an object that does not exist.
func (f *found) nowhere(n Need) (message, hint, example string) {
	message = fmt.Sprintf("none of these files has the %s: the pod would wait for it", advice.Shorten(n.Object.String()))
	if n.Pull {
		message = fmt.Sprintf("none of these files has the %s: images are pulled without it", advice.Shorten(n.Object.String()))
	}
	hint, example = f.elsewhere(n)
	return message, hint, example
}

// needed is about an object that is not in a file, and may be in another.
func (f *found) needed(n Need) (message, hint, example string) {
	message = "needs: " + advice.Shorten(n.Object.String())
	if n.Key != "" {
		message += ", with the key " + advice.Shorten(n.Key)
	}
	hint, example = f.elsewhere(n)
	if hint == unwritten {
		hint = "" // it may be written
	}
	return message, hint, example
}

// keyless is about an object without the key that is needed.
func (f *found) keyless(n Need) (message, hint string) {
	names := make([]string, 0, len(f.keys[n.Object]))
	for key := range f.keys[n.Object] {
		names = append(names, key)
	}
	return fmt.Sprintf("the %s has no key %q: the pod would wait for it", advice.Shorten(n.Object.String()), advice.Shorten(n.Key)),
		f.meant(n.Key, names, "add it, or make the reference optional")
}

// unwritten is the remedy for an object that has no other.
const unwritten = "write one, or make the reference optional"

// elsewhere is the remedy for an object that is not there: what it may be meant to
// be, of the pod's namespace or another; and an example, where it takes one.
func (f *found) elsewhere(n Need) (hint, example string) {
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
	if hint := f.meant(of.Name, names, ""); hint != "" {
		return hint, ""
	}
	switch {
	case n.Pull:
		return "write one of type kubernetes.io/dockerconfigjson, or remove it from imagePullSecrets", ""
	case of.Kind != pod.KindPersistentVolumeClaim:
		return unwritten, ""
	}
	example = f.claimExample(of)
	if example == "" {
		return "write one, and a PersistentVolume for it to have", ""
	}
	return "write it, and a PersistentVolume for it to have, with the size and the directory that you want:", example
}

// claimExample is a claim of that name and its volume.
func (f *found) claimExample(key pod.ObjectKey) string {
	claim := SmallClaim(key.Namespace, key.Name)
	volume := VolumeFor(claim, func(name string) bool {
		_, taken := f.keys[pod.ObjectKey{Kind: pod.KindPersistentVolume, Name: name}]
		return taken
	})
	if volume == nil {
		return ""
	}
	return Manifest(volume, claim)
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
