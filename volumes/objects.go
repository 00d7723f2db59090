package volumes

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Objects returns the ConfigMaps and Secrets of a pod's namespace for its live volumes. The
// error for a missing one is of class pod.ErrNotFound. The returned objects must not be
// modified. It must not block.
type Objects interface {
	ConfigMap(p *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(p *v1.Pod, name string) (*v1.Secret, error)
}

// Downward provides the values of downwardAPI volumes. It must not block.
type Downward interface {
	// Field returns the value of a fieldRef.
	Field(p *v1.Pod, path string) (string, error)
	// Resource returns the value of a resourceFieldRef for the container that it names.
	Resource(p *v1.Pod, ref *v1.ResourceFieldSelector) (string, error)
}

// noObjects is used if Options.Objects is nil.
type noObjects struct{}

func (noObjects) ConfigMap(_ *v1.Pod, name string) (*v1.ConfigMap, error) {
	return nil, fmt.Errorf("configmap %q %w", name, pod.ErrNotFound)
}

func (noObjects) Secret(_ *v1.Pod, name string) (*v1.Secret, error) {
	return nil, fmt.Errorf("secret %q %w", name, pod.ErrNotFound)
}

// contentSources provides the content of live volumes.
type contentSources struct {
	objects      Objects
	downward     Downward        // nil for none
	tokens       Tokens          // nil for none
	bundles      TrustBundles    // nil for none
	certificates PodCertificates // nil for none
	users        bool            // podd honours user and defaultUser of files
}

// podObjects are the objects as one pod sees them: an immutable object keeps the content
// that the pod's volumes got first, even if its source changes it.
type podObjects struct{ m *Mounter }

func (o podObjects) ConfigMap(p *v1.Pod, name string) (*v1.ConfigMap, error) {
	key := pod.ObjectKey{Kind: pod.KindConfigMap, Namespace: p.Namespace, Name: name}
	if kept := o.m.immutable(p.UID, key); kept != nil {
		return kept.ConfigMap, nil
	}
	c, err := o.m.options.Objects.ConfigMap(p, name)
	if err == nil && c.Immutable != nil && *c.Immutable {
		o.m.pinImmutable(p.UID, key, &pod.Object{ConfigMap: c})
	}
	return c, err
}

func (o podObjects) Secret(p *v1.Pod, name string) (*v1.Secret, error) {
	key := pod.ObjectKey{Kind: pod.KindSecret, Namespace: p.Namespace, Name: name}
	if kept := o.m.immutable(p.UID, key); kept != nil {
		return kept.Secret, nil
	}
	s, err := o.m.options.Objects.Secret(p, name)
	if err == nil && s.Immutable != nil && *s.Immutable {
		o.m.pinImmutable(p.UID, key, &pod.Object{Secret: s})
	}
	return s, err
}

func (m *Mounter) immutable(uid pod.UID, key pod.ObjectKey) *pod.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.stateOf(uid).live; l != nil {
		return l.immutable[key]
	}
	return nil
}

func (m *Mounter) pinImmutable(uid pod.UID, key pod.ObjectKey, o *pod.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.stateOf(uid).live; l != nil {
		if l.immutable == nil {
			l.immutable = map[pod.ObjectKey]*pod.Object{}
		}
		l.immutable[key] = o
	}
}
