package manifest

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Missing returns a warning for each ConfigMap, Secret and claim, and each key of the
// former two, that a pod requires and that does not exist: the pod would wait for it.
// A missing imagePullSecret does not prevent the pull. One of problems may say why an
// object does not exist.
func Missing(c Content, problems []pod.Problem, now time.Time) []pod.Problem {
	f := newFound(c.Objects, problems)
	const most = 100
	var out []pod.Problem
	for _, d := range c.Pods {
		told := map[need]bool{}
		for _, n := range needs(d.Pod) {
			what := need{object: n.object, key: n.key}
			if told[what] {
				continue // it may be named ten thousand times
			}
			told[what] = true
			message, hint := f.missing(n)
			if message == "" {
				continue
			}
			if len(out) == most {
				message, hint = "there are more warnings of this kind after this one", "fix the ones above first"
			}
			out = append(out, pod.Problem{Origin: d.Origin, Line: d.Line, Field: n.path, Pod: d.Name(), Message: message, Hint: hint, Warning: true, Since: now})
			if len(out) > most {
				return out
			}
		}
	}
	return out
}

// need is an object, or a key of it, without which a pod does not start.
type need struct {
	path   string
	object pod.ObjectKey
	key    string // "" for the object alone
}

// needs are what a pod cannot do without, in the order of its spec. It can do without a
// volume that none of its containers uses.
func needs(p *v1.Pod) []need {
	l := needList{namespace: p.Namespace}
	used := pod.UsedVolumes(p)
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; used[v.Name] {
			l.volume(fmt.Sprintf("spec.volumes[%d]", i), &v.VolumeSource)
		}
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
