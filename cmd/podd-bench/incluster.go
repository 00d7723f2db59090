package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"podd/test/cluster"
	"podd/test/e2e/testnode"
)

// inCluster is upstream's kubelet with an apiserver, for pods that name ConfigMaps and
// Secrets: it refuses static ones that do. Both run while it has its turn, and at no
// other time.
type inCluster struct {
	*kubelet
	server *cluster.APIServer
	// objects are the documents that the apiserver has, by name; created the pods that were
	// and are to be removed, by file.
	objects map[string]string
	created map[string]cluster.Object
}

// errNoCluster says that there is no kubelet with an apiserver to measure: neither
// podd's fault nor a figure.
var errNoCluster = errors.New("no kubelet with an apiserver")

// inClusterNode is the name of its Node.
const inClusterNode = "kubelet"

func newInCluster(node *testnode.Node, binary, apiserver string) *inCluster {
	k := newKubelet(node, binary)
	k.Dir = filepath.Join(node.Dir, "kubelet-in-cluster")
	k.Args = []string{"--hostname-override", inClusterNode, "--node-ip", testnode.NodeIP(), "--kubeconfig", filepath.Join(node.Dir, "kubeconfig")}
	return &inCluster{
		kubelet: k, objects: map[string]string{}, created: map[string]cluster.Object{},
		// In the directory of a whole cluster's apiserver this Node would be there, too, when
		// that cluster's turn comes, and its scheduler would bind pods to it.
		server: &cluster.APIServer{Binary: apiserver, Dir: filepath.Join(node.Dir, "apiserver-of-kubelet"), Port: node.Port + 8},
	}
}

// start returns when both answer. What the apiserver had at its last turn is there.
func (k *inCluster) start(ctx context.Context) error {
	if k.server.Binary == "" {
		return fmt.Errorf("%w: no path of a kube-apiserver is given (`make parity` builds one; -apiserver PATH)", errNoCluster)
	}
	err := k.server.Start(ctx)
	if err == nil {
		err = k.server.Kubeconfig(filepath.Join(k.Place.Dir, "kubeconfig"))
	}
	if err == nil {
		err = k.kubelet.start(ctx)
	}
	if err != nil && ctx.Err() == nil {
		return errors.Join(fmt.Errorf("%w: %w", errNoCluster, err), k.stop())
	}
	return err
}

func (k *inCluster) stop() error { return errors.Join(k.kubelet.stop(), k.server.Stop()) }

// object gives documents to the apiserver, unless it has them.
func (k *inCluster) object(name, text string) (time.Time, error) {
	begin := time.Now()
	if k.objects[name] == text {
		return begin, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		o, err := asObject(document)
		if err != nil {
			return begin, err
		}
		if err := k.server.Client().Apply(ctx, o); err != nil {
			return begin, err
		}
	}
	k.objects[name] = text
	return begin, nil
}

// apply creates the pods, bound to the node as a scheduler would have them.
func (k *inCluster) apply(manifests map[string]string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	bound := map[string]cluster.Object{}
	for file, text := range manifests {
		pod, err := asObject(text)
		if err != nil {
			return time.Time{}, fmt.Errorf("%s: %w", file, err)
		}
		pod["spec"].(map[string]any)["nodeName"] = inClusterNode
		bound[file] = pod
	}
	maps.Copy(k.created, bound)
	begin := time.Now()
	for file, pod := range bound {
		if err := k.server.Client().Create(ctx, pod); err != nil {
			return begin, fmt.Errorf("create the pod of %s: %w", file, err)
		}
	}
	return begin, nil
}

// remove deletes the pods, and returns when the kubelet has let go of them: what it
// does for one that ends is not to be in the next one's start.
func (k *inCluster) remove(files []string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begin := time.Now()
	for _, file := range files {
		if err := k.server.Client().Delete(ctx, k.created[file]); err != nil {
			return begin, err
		}
	}
	for _, file := range files {
		if err := k.server.Client().Gone(ctx, k.created[file]); err != nil {
			return begin, err
		}
		delete(k.created, file)
	}
	return begin, nil
}

func asObject(document string) (o cluster.Object, err error) {
	if err := yaml.Unmarshal([]byte(document), &o); err != nil {
		return nil, err
	}
	if _, ok := o["spec"].(map[string]any); !ok && o["kind"] == "Pod" {
		return nil, errors.New("the pod has no spec")
	}
	return o, nil
}

// turnInCluster does the parts with the kubelet that has an apiserver, in the kubelet's
// column. Where there is none, it says why, and the column has no figures.
func (b *bench) turnInCluster(ctx context.Context, turn int, parts []part) error {
	alone := b.agents[colKubelet]
	if b.inCluster == nil || !slices.ContainsFunc(parts, func(p part) bool { return b.wants(p.what) }) {
		return nil
	}
	b.say("turn %d/%d: %s with an apiserver", turn+1, b.plan.turns, colKubelet)
	b.agents[colKubelet] = b.inCluster
	defer func() { b.agents[colKubelet] = alone }()
	err := b.block(ctx, colKubelet, turn, parts)
	if errors.Is(err, errNoCluster) {
		b.say("  not measured: %v", err)
		b.inCluster = nil
		return nil
	}
	return err
}
