package volumes

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Objects has the API's objects that volumes are made of. The error for one that
// is not there is of the class pod.ErrNotFound; nobody may change what is
// returned. It must not block.
type Objects interface {
	ConfigMap(namespace, name string) (*v1.ConfigMap, error)
	Secret(namespace, name string) (*v1.Secret, error)
}

// Downward has what a pod's volumes say of the pod itself. It must not block.
type Downward interface {
	// Field is a fieldRef's value.
	Field(p *v1.Pod, path string) (string, error)
	// Resource is a resourceFieldRef's value, of the container that it names.
	Resource(p *v1.Pod, ref *v1.ResourceFieldSelector) (string, error)
}

// noObjects stands for Options.Objects on a node that reads none.
type noObjects struct{}

func (noObjects) ConfigMap(_, name string) (*v1.ConfigMap, error) {
	return nil, fmt.Errorf("configmap %q %w", name, pod.ErrNotFound)
}

func (noObjects) Secret(_, name string) (*v1.Secret, error) {
	return nil, fmt.Errorf("secret %q %w", name, pod.ErrNotFound)
}

// values is what the files of a live volume come from.
type values struct {
	objects  Objects
	downward Downward // nil for none
}

// podObjects are the objects as one pod sees them: an immutable one stays as its
// volumes had it first, whatever its source makes of it.
type podObjects struct {
	m   *Mounter
	uid pod.UID
}

func (o podObjects) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	key := pod.ObjectKey{Kind: pod.KindConfigMap, Namespace: namespace, Name: name}
	if kept := o.m.immutable(o.uid, key); kept != nil {
		return kept.ConfigMap, nil
	}
	c, err := o.m.options.Objects.ConfigMap(namespace, name)
	if err == nil && c.Immutable != nil && *c.Immutable {
		o.m.keepImmutable(o.uid, key, &pod.Object{ConfigMap: c})
	}
	return c, err
}

func (o podObjects) Secret(namespace, name string) (*v1.Secret, error) {
	key := pod.ObjectKey{Kind: pod.KindSecret, Namespace: namespace, Name: name}
	if kept := o.m.immutable(o.uid, key); kept != nil {
		return kept.Secret, nil
	}
	s, err := o.m.options.Objects.Secret(namespace, name)
	if err == nil && s.Immutable != nil && *s.Immutable {
		o.m.keepImmutable(o.uid, key, &pod.Object{Secret: s})
	}
	return s, err
}

func (m *Mounter) immutable(uid pod.UID, key pod.ObjectKey) *pod.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.live[uid]; l != nil {
		return l.immutable[key]
	}
	return nil
}

func (m *Mounter) keepImmutable(uid pod.UID, key pod.ObjectKey, o *pod.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.live[uid]; l != nil {
		if l.immutable == nil {
			l.immutable = map[pod.ObjectKey]*pod.Object{}
		}
		l.immutable[key] = o
	}
}
