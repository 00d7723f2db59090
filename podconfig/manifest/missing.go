package manifest

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/internal/suggest"
)

// Missing returns a warning for each ConfigMap, Secret and claim, and each key of
// the former, that a pod cannot do without and that is not there: it would wait for it.
// What is pulled without a Secret is pulled all the same.
func Missing(c Content, now time.Time) []pod.Problem {
	keys := make(map[pod.ObjectKey][]string, len(c.Objects))
	for _, o := range c.Objects {
		keys[o.Key()] = keysOf(o)
	}
	const most = 100
	var out []pod.Problem
	for _, d := range c.Pods {
		told := map[string]bool{}
		for _, n := range needs(d.Pod) {
			message, hint := n.missing(keys)
			if message == "" || told[message] {
				continue
			}
			if len(out) == most {
				message, hint = "there are more warnings of this kind after this one", "fix the ones above first"
			}
			told[message] = true
			out = append(out, pod.Problem{Origin: d.Origin, Line: d.Line, Field: n.path, Pod: d.Name(), Message: message, Hint: hint, Warning: true, Since: now})
			if len(out) > most {
				return out
			}
		}
	}
	return out
}

// keysOf are an object's keys, in no order.
func keysOf(o *pod.Object) []string {
	var keys []string
	switch {
	case o.Secret != nil:
		for key := range o.Secret.Data {
			keys = append(keys, key)
		}
		return keys
	case o.ConfigMap == nil:
		return nil
	}
	for key := range o.ConfigMap.Data {
		keys = append(keys, key)
	}
	for key := range o.ConfigMap.BinaryData {
		keys = append(keys, key)
	}
	return keys
}

// need is an object, or a key of it, without which a pod does not start.
type need struct {
	path   string
	object pod.ObjectKey
	key    string // "" for the object alone
}

// missing says what of it is not there; "" where all is.
func (n need) missing(keys map[pod.ObjectKey][]string) (message, hint string) {
	has, found := keys[n.object]
	switch {
	case !found:
		hint = "write one, or make the reference optional"
		if n.object.Kind == pod.KindPersistentVolumeClaim {
			hint = "write one, and a PersistentVolume for it to have"
		}
		var others []string
		for other := range keys {
			if other.Kind == n.object.Kind && other.Namespace == n.object.Namespace {
				others = append(others, other.Name)
			}
		}
		slices.Sort(others)
		if meant := suggest.Name(n.object.Name, others); meant != "" {
			hint = fmt.Sprintf("did you mean %q?", meant)
		}
		return fmt.Sprintf("none of these files has the %s: the pod would wait for it", shorten(n.object.String())), hint
	case n.key != "" && !slices.Contains(has, n.key):
		hint = "add it, or make the reference optional"
		if meant := suggest.Name(n.key, has); meant != "" {
			hint = fmt.Sprintf("did you mean %q?", meant)
		}
		return fmt.Sprintf("the %s has no key %q: the pod would wait for it", shorten(n.object.String()), shorten(n.key)), hint
	}
	return "", ""
}

// needs are what a pod cannot do without, in the order of its spec.
func needs(p *v1.Pod) []need {
	l := needList{namespace: p.Namespace}
	for i := range p.Spec.Volumes {
		l.volume(fmt.Sprintf("spec.volumes[%d]", i), &p.Spec.Volumes[i].VolumeSource)
	}
	visitContainers(p, func(path string, c *v1.Container) {
		for i, e := range c.EnvFrom {
			at := fmt.Sprintf("%s.envFrom[%d]", path, i)
			if ref := e.ConfigMapRef; ref != nil {
				l.add(at+".configMapRef", pod.KindConfigMap, ref.Name, ref.Optional)
			}
			if ref := e.SecretRef; ref != nil {
				l.add(at+".secretRef", pod.KindSecret, ref.Name, ref.Optional)
			}
		}
		for i, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			at := fmt.Sprintf("%s.env[%d].valueFrom", path, i)
			if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
				l.add(at+".configMapKeyRef", pod.KindConfigMap, ref.Name, ref.Optional, ref.Key)
			}
			if ref := e.ValueFrom.SecretKeyRef; ref != nil {
				l.add(at+".secretKeyRef", pod.KindSecret, ref.Name, ref.Optional, ref.Key)
			}
		}
	})
	return l.all
}

type needList struct {
	namespace string
	all       []need
}

func (l *needList) add(path, kind, name string, optional *bool, keys ...string) {
	if optional != nil && *optional || name == "" {
		return
	}
	object := pod.ObjectKey{Kind: kind, Namespace: l.namespace, Name: name}
	if len(keys) == 0 {
		keys = []string{""}
	}
	for _, key := range keys {
		l.all = append(l.all, need{path, object, key})
	}
}

func (l *needList) volume(path string, v *v1.VolumeSource) {
	switch {
	case v.ConfigMap != nil:
		l.add(path+".configMap", pod.KindConfigMap, v.ConfigMap.Name, v.ConfigMap.Optional, itemKeys(v.ConfigMap.Items)...)
	case v.Secret != nil:
		l.add(path+".secret", pod.KindSecret, v.Secret.SecretName, v.Secret.Optional, itemKeys(v.Secret.Items)...)
	case v.PersistentVolumeClaim != nil:
		l.add(path+".persistentVolumeClaim", pod.KindPersistentVolumeClaim, v.PersistentVolumeClaim.ClaimName, nil)
	case v.Projected != nil:
		for i, s := range v.Projected.Sources {
			at := fmt.Sprintf("%s.projected.sources[%d]", path, i)
			if s.ConfigMap != nil {
				l.add(at+".configMap", pod.KindConfigMap, s.ConfigMap.Name, s.ConfigMap.Optional, itemKeys(s.ConfigMap.Items)...)
			}
			if s.Secret != nil {
				l.add(at+".secret", pod.KindSecret, s.Secret.Name, s.Secret.Optional, itemKeys(s.Secret.Items)...)
			}
		}
	}
}

func itemKeys(items []v1.KeyToPath) []string {
	keys := make([]string, len(items))
	for i, item := range items {
		keys[i] = item.Key
	}
	return keys
}
