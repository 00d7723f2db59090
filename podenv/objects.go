package podenv

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Objects has the API's objects that variables come from. The error for one
// that is not there is of the class pod.ErrNotFound; nobody may change what is
// returned.
type Objects interface {
	ConfigMap(namespace, name string) (*v1.ConfigMap, error)
	Secret(namespace, name string) (*v1.Secret, error)
}

// noObjects stands for Config.Objects on a node that reads none yet.
type noObjects struct{}

func (noObjects) ConfigMap(string, string) (*v1.ConfigMap, error) {
	return nil, noSource("podd has no source of ConfigMaps")
}

func (noObjects) Secret(string, string) (*v1.Secret, error) {
	return nil, noSource("podd has no source of Secrets")
}

type noSource string

func (e noSource) Error() string { return string(e) }
func (e noSource) Unwrap() error { return pod.ErrNotFound }

// configMap is nil for one that is optional and not there.
func (r *Resolver) configMap(namespace, name string, optional *bool) (*v1.ConfigMap, error) {
	object, err := r.cfg.Objects.ConfigMap(namespace, name)
	switch {
	case errors.Is(err, pod.ErrNotFound) && isTrue(optional):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("couldn't get configMap %s/%s: %w", namespace, name, err)
	}
	return object, nil
}

// secret is nil for one that is optional and not there.
func (r *Resolver) secret(namespace, name string, optional *bool) (*v1.Secret, error) {
	object, err := r.cfg.Objects.Secret(namespace, name)
	switch {
	case errors.Is(err, pod.ErrNotFound) && isTrue(optional):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("couldn't get secret %s/%s: %w", namespace, name, err)
	}
	return object, nil
}

// envFrom adds all of an object's keys, in their order.
func (r *Resolver) envFrom(namespace string, from v1.EnvFromSource, env *pod.Environment) error {
	if ref := from.ConfigMapRef; ref != nil {
		object, err := r.configMap(namespace, ref.Name, ref.Optional)
		if err != nil || object == nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(object.Data)) {
			env.Set(from.Prefix+key, object.Data[key])
		}
	}
	if ref := from.SecretRef; ref != nil {
		object, err := r.secret(namespace, ref.Name, ref.Optional)
		if err != nil || object == nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(object.Data)) {
			env.Set(from.Prefix+key, string(object.Data[key]))
		}
	}
	return nil
}

func (r *Resolver) configMapValue(namespace string, ref *v1.ConfigMapKeySelector) (value string, ok bool, err error) {
	object, err := r.configMap(namespace, ref.Name, ref.Optional)
	if err != nil || object == nil {
		return "", false, err
	}
	if value, ok = object.Data[ref.Key]; !ok && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, namespace, ref.Name)
	}
	return value, ok, nil
}

func (r *Resolver) secretValue(namespace string, ref *v1.SecretKeySelector) (value string, ok bool, err error) {
	object, err := r.secret(namespace, ref.Name, ref.Optional)
	if err != nil || object == nil {
		return "", false, err
	}
	bytes, ok := object.Data[ref.Key]
	if !ok && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, namespace, ref.Name)
	}
	return string(bytes), ok, nil
}
