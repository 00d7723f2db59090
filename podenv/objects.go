package podenv

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Objects has the API's objects that a pod's variables come from, of its namespace. The
// error for a missing one is of the class pod.ErrNotFound; nobody may change what is
// returned.
type Objects interface {
	ConfigMap(p *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(p *v1.Pod, name string) (*v1.Secret, error)
}

// noObjects stands for Config.Objects where there are none.
type noObjects struct{}

func (noObjects) ConfigMap(_ *v1.Pod, name string) (*v1.ConfigMap, error) {
	return nil, fmt.Errorf("configmap %q %w", name, pod.ErrNotFound)
}

func (noObjects) Secret(_ *v1.Pod, name string) (*v1.Secret, error) {
	return nil, fmt.Errorf("secret %q %w", name, pod.ErrNotFound)
}

// objectReader reads the objects of one container's variables, each once, so that all
// variables come from the same version of an object, whatever changes meanwhile.
//
// Its errors are the kubelet's to the word, and none has a value.
type objectReader struct {
	objects    Objects
	pod        *v1.Pod
	configMaps map[string]*v1.ConfigMap
	secrets    map[string]*v1.Secret
}

func (r *Resolver) objectsFor(p *v1.Pod) *objectReader {
	return &objectReader{
		objects: r.cfg.Objects, pod: p,
		configMaps: make(map[string]*v1.ConfigMap), secrets: make(map[string]*v1.Secret),
	}
}

// configMap is nil for an optional one that does not exist.
func (o *objectReader) configMap(name string, optional *bool) (*v1.ConfigMap, error) {
	return readOnce(o.configMaps, o.objects.ConfigMap, o.pod, name, optional)
}

// secret is nil for an optional one that does not exist.
func (o *objectReader) secret(name string, optional *bool) (*v1.Secret, error) {
	return readOnce(o.secrets, o.objects.Secret, o.pod, name, optional)
}

// readOnce gets a pod's object of that name, unless it was read before.
func readOnce[T any](read map[string]*T, get func(p *v1.Pod, name string) (*T, error), p *v1.Pod, name string, optional *bool) (*T, error) {
	if object := read[name]; object != nil {
		return object, nil
	}
	object, err := get(p, name)
	switch {
	case errors.Is(err, pod.ErrNotFound) && isTrue(optional):
		return nil, nil
	case err != nil:
		return nil, err
	}
	read[name] = object
	return object, nil
}

// addAllKeys adds all of an object's keys, in their order. None is left out: since v1.34
// upstream takes any name that the keys of an object can have.
func (o *objectReader) addAllKeys(from v1.EnvFromSource, env *pod.Environment) error {
	if ref := from.ConfigMapRef; ref != nil {
		object, err := o.configMap(ref.Name, ref.Optional)
		if err != nil || object == nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(object.Data)) {
			if err := o.checkValue("ConfigMap", ref.Name, key, object.Data[key]); err != nil {
				return err
			}
			env.Set(from.Prefix+key, object.Data[key])
		}
	}
	if ref := from.SecretRef; ref != nil {
		object, err := o.secret(ref.Name, ref.Optional)
		if err != nil || object == nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(object.Data)) {
			if err := o.checkValue("Secret", ref.Name, key, string(object.Data[key])); err != nil {
				return err
			}
			env.SetConfidential(from.Prefix+key, string(object.Data[key]))
		}
	}
	return nil
}

// configMapValue is the value of one key; ok is false for an optional one that does not
// exist.
func (o *objectReader) configMapValue(ref *v1.ConfigMapKeySelector) (value string, ok bool, err error) {
	object, err := o.configMap(ref.Name, ref.Optional)
	if err != nil || object == nil {
		return "", false, err
	}
	value, ok = object.Data[ref.Key]
	if !ok {
		return "", false, o.missingKeyError("ConfigMap", ref.Name, ref.Key, ref.Optional)
	}
	return value, true, o.checkValue("ConfigMap", ref.Name, ref.Key, value)
}

// secretValue is configMapValue for a Secret.
func (o *objectReader) secretValue(ref *v1.SecretKeySelector) (value string, ok bool, err error) {
	object, err := o.secret(ref.Name, ref.Optional)
	if err != nil || object == nil {
		return "", false, err
	}
	bytes, ok := object.Data[ref.Key]
	if !ok {
		return "", false, o.missingKeyError("Secret", ref.Name, ref.Key, ref.Optional)
	}
	return string(bytes), true, o.checkValue("Secret", ref.Name, ref.Key, string(bytes))
}

func (o *objectReader) missingKeyError(kind, name, key string, optional *bool) error {
	if isTrue(optional) {
		return nil
	}
	return fmt.Errorf("couldn't find key %v in %s %v/%v", key, kind, o.pod.Namespace, name)
}

// checkValue rejects a value that no variable can have. In the kubelet it fails later, in the
// kernel. Bytes that are no UTF-8 can be a variable's (kubernetes/kubernetes#139192).
func (o *objectReader) checkValue(kind, name, key, value string) error {
	if strings.ContainsRune(value, 0) {
		return fmt.Errorf("couldn't use key %v in %s %v/%v: its value has a NUL byte, which no variable can have: mount it as a volume", key, kind, o.pod.Namespace, name)
	}
	return nil
}
