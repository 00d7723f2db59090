package main

import (
	"context"
	"errors"
	"path/filepath"

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

func (k *kubeletInCluster) Close() error { return errors.Join(k.kubelet.Stop(), k.server.Stop()) }
