package main

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"slices"

	"podd/test/cluster"
	"podd/test/e2e/testnode"
)

// kubeletInCluster is upstream's with an apiserver, for what a kubelet has from
// nowhere else: ConfigMaps, Secrets, and pods that name them.
type kubeletInCluster struct {
	*kubelet
	*throughAPI
}

// newKubeletInCluster is a kubelet that looks once a second. By itself it looks once
// a minute, and a changed object reaches a volume only then.
func newKubeletInCluster(node *testnode.Node, binary, apiserver string) Agent {
	k := newKubelet(node, "", binary)
	delete(k.Config, "staticPodURL")
	k.Config["syncFrequency"] = "1s"
	kubeconfig := filepath.Join(node.Dir, "kubeconfig")
	k.Args = append(k.Args, "--kubeconfig", kubeconfig)
	server := &cluster.APIServer{Binary: apiserver, Dir: filepath.Join(node.Dir, "apiserver"), Port: node.Port + 8}
	return &kubeletInCluster{k, &throughAPI{server: server, placed: map[string][]cluster.Object{}}}
}

// Start starts the apiserver with the kubelet's first start; it outlives the others.
func (k *kubeletInCluster) Start(ctx context.Context) error {
	if !k.server.Running() {
		if err := k.server.Start(ctx); err != nil {
			return err
		}
		if err := k.server.Kubeconfig(filepath.Join(k.Place.Dir, "kubeconfig")); err != nil {
			return err
		}
	}
	return k.kubelet.Start(ctx)
}

// unregistered is what a kubelet may say of a pod that has ended: it forgets which
// objects the pod names before it stops to bring its volumes up to date
// (kubernetes/kubernetes#105204).
var unregistered = regexp.MustCompile(`: object "[^"]*"/"[^"]*" not registered$`)

// Events are without those that hang on whether a pod ended between two steps of the
// kubelet's.
func (k *kubeletInCluster) Events(ctx context.Context, pod string) ([]Event, error) {
	events, err := k.kubelet.Events(ctx, pod)
	return slices.DeleteFunc(events, func(e Event) bool { return e.Reason == "FailedMount" && unregistered.MatchString(e.Message) }), err
}

func (k *kubeletInCluster) Close() error { return errors.Join(k.kubelet.Stop(), k.server.Stop()) }
