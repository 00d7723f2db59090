package volumes

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// store implements Objects, Downward and Events.
type store struct {
	mu      sync.Mutex
	objects map[pod.ObjectKey]*pod.Object
	gate    chan struct{} // if set, every get waits until it is closed
	looks   int
	events  []string
}

func newStore(objects ...*pod.Object) *store {
	s := &store{objects: map[pod.ObjectKey]*pod.Object{}}
	for _, o := range objects {
		s.put(o)
	}
	return s
}

func (s *store) into(o *Options) { o.Objects, o.Downward, o.Events = s, s, s }

func (s *store) put(o *pod.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[o.Key()] = o
}

func (s *store) drop(kind, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, pod.ObjectKey{Kind: kind, Namespace: "default", Name: name})
}

func (s *store) hold() (release func()) {
	gate := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = gate
	return sync.OnceFunc(func() { close(gate) })
}

func (s *store) looked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

func (s *store) get(kind, namespace, name string) (*pod.Object, error) {
	s.mu.Lock()
	s.looks++
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[pod.ObjectKey{Kind: kind, Namespace: namespace, Name: name}]; o != nil {
		return o, nil
	}
	return nil, pod.ErrNotFound
}

func (s *store) ConfigMap(p *v1.Pod, name string) (*v1.ConfigMap, error) {
	o, err := s.get(pod.KindConfigMap, p.Namespace, name)
	if err != nil {
		return nil, fmt.Errorf("configmap %q %w", name, err)
	}
	return o.ConfigMap, nil
}

func (s *store) Secret(p *v1.Pod, name string) (*v1.Secret, error) {
	o, err := s.get(pod.KindSecret, p.Namespace, name)
	if err != nil {
		return nil, fmt.Errorf("secret %q %w", name, err)
	}
	return o.Secret, nil
}

func (s *store) Field(p *v1.Pod, path string) (string, error) {
	if value, ok := pod.FieldPathValue(p, path); ok {
		return value, nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", path)
}

func (s *store) Resource(_ *v1.Pod, ref *v1.ResourceFieldSelector) (string, error) {
	return ref.ContainerName + " " + ref.Resource, nil
}

func (s *store) Event(_ *v1.Pod, eventType, reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, eventType+" "+reason+": "+message)
}

func (s *store) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

func aConfigMap(name string, pairs ...string) *pod.Object {
	c := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: map[string]string{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		c.Data[pairs[i]] = pairs[i+1]
	}
	return &pod.Object{ConfigMap: c}
}

func aSecret(name string, pairs ...string) *pod.Object {
	s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: map[string][]byte{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		s.Data[pairs[i]] = []byte(pairs[i+1])
	}
	return &pod.Object{Secret: s}
}

func immutable(o *pod.Object) *pod.Object {
	yes := true
	if o.ConfigMap != nil {
		o.ConfigMap.Immutable = &yes
	} else {
		o.Secret.Immutable = &yes
	}
	return o
}

func fromConfigMap(name, object string, change ...func(*v1.ConfigMapVolumeSource)) v1.Volume {
	source := &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: object}}
	for _, c := range change {
		c(source)
	}
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ConfigMap: source}}
}

func fromSecret(name, object string, change ...func(*v1.SecretVolumeSource)) v1.Volume {
	source := &v1.SecretVolumeSource{SecretName: object}
	for _, c := range change {
		c(source)
	}
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Secret: source}}
}

// fromPod takes pairs of a path and a field.
func fromPod(name string, pairs ...string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: fields(pairs...)}}}
}

func fields(pairs ...string) []v1.DownwardAPIVolumeFile {
	var items []v1.DownwardAPIVolumeFile
	for i := 0; i+1 < len(pairs); i += 2 {
		items = append(items, v1.DownwardAPIVolumeFile{Path: pairs[i], FieldRef: &v1.ObjectFieldSelector{FieldPath: pairs[i+1]}})
	}
	return items
}

func projected(name string, sources ...v1.VolumeProjection) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}}
}

func partConfigMap(object string, items ...v1.KeyToPath) v1.VolumeProjection {
	return v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: object}, Items: items}}
}

func partSecret(object string, items ...v1.KeyToPath) v1.VolumeProjection {
	return v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: object}, Items: items}}
}

func partPod(pairs ...string) v1.VolumeProjection {
	return v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: fields(pairs...)}}
}

// names returns the sorted keys of a map.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
