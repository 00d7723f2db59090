package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"podd/internal/pod"
	"podd/internal/wake"
)

// listBackoff sets how soon a request is retried after the apiserver fails. The kubelet backs off
// up to a minute, and pods then wait that long after an outage.
var listBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 10 * time.Second}

// FollowPods calls set with all pods that are bound to a node, as soon as they are known and
// again after each change. The pods are read-only. While the apiserver does not respond, set is
// called once with each new reason, and the pods stay as they were. Calls of set never overlap.
// FollowPods blocks until ctx ends.
func (c *Client) FollowPods(ctx context.Context, node string, set func(pods []*v1.Pod, err error)) {
	follow(ctx, selection{c.core, "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", node), 0}, &v1.Pod{}, set)
}

// FollowNode is FollowPods for the Node of that name. If it does not exist, set is called with
// an empty list.
func (c *Client) FollowNode(ctx context.Context, name string, set func(nodes []*v1.Node, err error)) {
	follow(ctx, selection{c.core, "nodes", metav1.NamespaceAll, byName(name), 0}, &v1.Node{}, set)
}

// FollowConfigMap is FollowNode for a ConfigMap.
func (c *Client) FollowConfigMap(ctx context.Context, namespace, name string, set func(all []*v1.ConfigMap, err error)) {
	follow(ctx, selection{c.core, "configmaps", namespace, byName(name), pod.BindingGrace}, &v1.ConfigMap{}, set)
}

// FollowSecret is FollowNode for a Secret.
func (c *Client) FollowSecret(ctx context.Context, namespace, name string, set func(all []*v1.Secret, err error)) {
	follow(ctx, selection{c.core, "secrets", namespace, byName(name), pod.BindingGrace}, &v1.Secret{}, set)
}

// FollowCSIDriver is FollowNode for a CSIDriver.
func (c *Client) FollowCSIDriver(ctx context.Context, name string, set func(all []*storagev1.CSIDriver, err error)) {
	follow(ctx, selection{c.storage, "csidrivers", metav1.NamespaceAll, byName(name), 0}, &storagev1.CSIDriver{}, set)
}

// FollowRuntimeClass is FollowNode for a RuntimeClass.
func (c *Client) FollowRuntimeClass(ctx context.Context, name string, set func(all []*nodev1.RuntimeClass, err error)) {
	follow(ctx, selection{c.node, "runtimeclasses", metav1.NamespaceAll, byName(name), 0}, &nodev1.RuntimeClass{}, set)
}

// FollowServices is FollowPods for the Services of all namespaces that have an address.
func (c *Client) FollowServices(ctx context.Context, set func(all []*v1.Service, err error)) {
	addressed := fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.clusterIP", v1.ClusterIPNone), fields.OneTermNotEqualSelector("spec.clusterIP", ""))
	follow(ctx, selection{c.core, "services", metav1.NamespaceAll, addressed, 0}, &v1.Service{}, set)
}

func byName(name string) fields.Selector {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name)
}

// object is a type that can be followed: a pointer to one of the API's types.
type object interface {
	runtime.Object
	metav1.Object
}

// selection says which objects to follow.
type selection struct {
	client              rest.Interface
	resource, namespace string
	fields              fields.Selector
	// forbiddenGrace is how long refusals are retried before one counts.
	forbiddenGrace time.Duration
}

func follow[T object](ctx context.Context, of selection, example T, set func([]T, error)) {
	s := &store[T]{set: set}
	lists := &lister{ListWatch: cache.NewListWatchFromClient(of.client, of.resource, of.namespace, of.fields), onResult: s.handleResult, graceEnd: time.Now().Add(of.forbiddenGrace)}
	pace := listBackoff
	// lister reports what the Reflector would log about requests.
	ctx = klog.NewContext(ctx, klog.New(nil))
	cache.NewReflectorWithOptions(lists, example, s, cache.ReflectorOptions{Name: "podd " + of.resource, Backoff: &pace}).RunWithContext(ctx)
}

// lister reports the outcome of each request of a Reflector, which itself only logs it.
type lister struct {
	*cache.ListWatch
	onResult func(err error)
	// graceEnd is when refusals are no longer retried.
	graceEnd time.Time
}

// retryForbidden makes a request, and retries refusals until graceEnd.
func (l *lister) retryForbidden(ctx context.Context, request func() error) error {
	for delay := pod.BindingRetry; ; delay *= 2 {
		err := request()
		if !apierrors.IsForbidden(err) || !time.Now().Add(delay).Before(l.graceEnd) {
			return err
		}
		if !wake.Sleep(ctx, delay) {
			return ctx.Err()
		}
	}
}

// ListWithContext implements cache.ListerWatcherWithContext.
func (l *lister) ListWithContext(ctx context.Context, options metav1.ListOptions) (all runtime.Object, err error) {
	err = l.retryForbidden(ctx, func() (err error) {
		all, err = l.ListWatch.ListWithContext(ctx, options)
		return err
	})
	if ctx.Err() == nil {
		l.onResult(err)
	}
	return all, err
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (l *lister) WatchWithContext(ctx context.Context, options metav1.ListOptions) (w watch.Interface, err error) {
	err = l.retryForbidden(ctx, func() (err error) {
		w, err = l.ListWatch.WatchWithContext(ctx, options)
		return err
	})
	if ctx.Err() == nil {
		l.onResult(err)
	}
	return w, err
}

// store is a cache.ReflectorStore that passes on whole sets. The Reflector's goroutine makes
// all calls to its methods.
type store[T object] struct {
	set     func([]T, error)
	objects map[types.UID]T
	// listed is set once a whole list has arrived.
	listed bool
	// failing says that the last request failed, with lastError.
	failing   bool
	lastError string
}

func (s *store[T]) handleResult(err error) {
	err = withoutURL(err)
	switch {
	case err == nil && s.failing:
		s.failing = false
		s.deliver()
	case err != nil && (!s.failing || err.Error() != s.lastError):
		s.failing, s.lastError = true, err.Error()
		s.set(nil, err)
	}
}

// withoutURL returns why a request failed, without the URL. The URL of a list or watch has a
// different timeout each time, so the same reason would be reported again and again.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

func (s *store[T]) deliver() {
	if s.listed {
		s.set(slices.Collect(maps.Values(s.objects)), nil)
	}
}

func (s *store[T]) put(o any) error {
	t, ok := o.(T)
	if !ok {
		return fmt.Errorf("the apiserver sent a %T", o)
	}
	s.objects[t.GetUID()] = t
	return nil
}

// Add implements cache.ReflectorStore, as do the methods below.
func (s *store[T]) Add(o any) error {
	if err := s.put(o); err != nil {
		return err
	}
	s.deliver()
	return nil
}

// Update is Add.
func (s *store[T]) Update(o any) error { return s.Add(o) }

// Delete removes an object.
func (s *store[T]) Delete(o any) error {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if t, ok := o.(T); ok {
		delete(s.objects, t.GetUID())
		s.deliver()
	}
	return nil
}

// Replace takes the first list, and a new one after each interruption.
func (s *store[T]) Replace(all []any, _ string) error {
	s.objects, s.listed = make(map[types.UID]T, len(all)), true
	for _, o := range all {
		if err := s.put(o); err != nil {
			return err
		}
	}
	s.deliver()
	return nil
}

// Resync does nothing: there is no resync period.
func (s *store[T]) Resync() error { return nil }
