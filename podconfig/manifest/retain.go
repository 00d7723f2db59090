package manifest

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"podd/internal/pod"
)

// Content is what a manifest, or a source, has.
type Content struct {
	Pods []*pod.Desired
	// Objects are what pods refer to: ConfigMaps, Secrets, volumes and claims.
	Objects []*pod.Object
}

// HasSecret says whether there is a Secret among the objects.
func (c Content) HasSecret() bool {
	return slices.ContainsFunc(c.Objects, func(o *pod.Object) bool { return o.Secret != nil })
}

// names are the names of the pods, and the keys of the objects.
func (c Content) names() (pods map[string]bool, objects map[pod.ObjectKey]bool) {
	pods, objects = map[string]bool{}, map[pod.ObjectKey]bool{}
	for _, p := range c.Pods {
		pods[p.Name()] = true
	}
	for _, o := range c.Objects {
		objects[o.Key()] = true
	}
	return pods, objects
}

// Reuse replaces new pods and objects by equal ones of before, so that they keep the
// time at which they were first seen, and comparing pointers shows no change.
func (c Content) Reuse(old Content) Content {
	out := Content{Pods: slices.Clone(c.Pods), Objects: slices.Clone(c.Objects)}
	for i, p := range out.Pods {
		for _, o := range old.Pods {
			if o.UID() == p.UID() && o.Line == p.Line {
				out.Pods[i] = o
			}
		}
	}
	had := make(map[pod.ObjectKey][]*pod.Object, len(old.Objects))
	for _, o := range old.Objects {
		had[o.Key()] = append(had[o.Key()], o)
	}
	for i, o := range out.Objects {
		before := had[o.Key()]
		if len(before) == 0 {
			continue
		}
		had[o.Key()] = before[1:] // of one that is there twice each is its own
		if h := before[0]; h.Origin == o.Origin && sameObject(h, o) {
			out.Objects[i] = h
		}
	}
	return out
}

func sameObject(a, b *pod.Object) bool {
	same := equality.Semantic.DeepEqual
	return same(a.ConfigMap, b.ConfigMap) && same(a.Secret, b.Secret) && same(a.Volume, b.Volume) && same(a.Claim, b.Claim) &&
		same(a.Driver, b.Driver)
}

// Retain returns the pods and objects of old that stay beside next although parts of the
// manifest failed: those that the failures name, if each names one that existed;
// otherwise, since it is unknown what the broken part describes, all that next does not
// name. A failed pod retains no object, a failed object no pod.
func Retain(next, old Content, failed []Failed) Content {
	k := retentionOf(old, failed)
	pods, objects := next.names()
	var retained Content
	for _, o := range old.Pods {
		if name := o.Name(); !pods[name] && (k.allPods || k.pods[name]) {
			retained.Pods = append(retained.Pods, o)
		}
	}
	for _, o := range old.Objects {
		if key := o.Key(); !objects[key] && (k.allObjects || k.objects[key]) {
			retained.Objects = append(retained.Objects, o)
		}
	}
	return retained
}

// MarkRetained sets LastGoodInUse on the problems because of which retained pods and
// objects stay (see Retain).
func MarkRetained(problems []pod.Problem, retained Content, failed []Failed, old Content) {
	k := retentionOf(old, failed)
	names := map[string]bool{}
	for _, p := range retained.Pods {
		names[p.Name()] = true
	}
	for _, o := range retained.Objects {
		names[o.Key().String()] = true
	}
	for _, f := range failed {
		for _, key := range f.keys() { // its problem names a pod where its kind is not known
			if f.Pod != "" && names[key.String()] {
				names[f.Pod] = true
			}
		}
	}
	for i := range problems {
		p := &problems[i]
		switch {
		case p.Warning: // of what is good
		case p.Pod == "" && p.Object == "":
			p.LastGoodInUse = len(names) > 0
		case p.Object != "":
			p.LastGoodInUse = names[p.Object] || k.allObjects && len(retained.Objects) > 0
		default:
			p.LastGoodInUse = names[p.Pod] || k.allPods && len(retained.Pods) > 0
		}
	}
}

// retention is what stays of the old content of a manifest when parts of the new one fail.
type retention struct {
	pods    map[string]bool
	objects map[pod.ObjectKey]bool
	// all that there is, as nobody knows which is meant
	allPods, allObjects bool
}

func retentionOf(old Content, failed []Failed) retention {
	k := retention{pods: map[string]bool{}, objects: map[pod.ObjectKey]bool{}}
	pods, objects := old.names()
	for _, f := range failed {
		known := pods[f.Pod]
		k.pods[f.Pod] = true
		for _, key := range f.keys() {
			known = known || objects[key]
			k.objects[key] = true
		}
		if !known {
			none := f == Failed{}
			k.allPods = k.allPods || none || f.Pod != ""
			k.allObjects = k.allObjects || none || f.Object != pod.ObjectKey{}
		}
	}
	return k
}

// keys are the possible keys of the failed object.
func (f Failed) keys() []pod.ObjectKey {
	if f.Object.Kind != "" || f.Object.Name == "" {
		return []pod.ObjectKey{f.Object}
	}
	all := make([]pod.ObjectKey, len(pod.ObjectKinds))
	for i, kind := range pod.ObjectKinds {
		all[i] = pod.ObjectKey{Kind: kind, Name: f.Object.Name}
		if pod.Namespaced(kind) {
			all[i].Namespace = f.Object.Namespace
		}
	}
	return all
}
