package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/test/cluster"
	"podd/test/e2e/testnode"
)

// member is what the world has besides if the node is one of a cluster: a real
// kube-apiserver, with an etcd of its own, and a proxy through which podd reaches it. The test
// itself goes to the apiserver without the proxy, and does later what an apiserver that is away
// does not do for it now.
type member struct {
	server *cluster.APIServer
	proxy  *proxy
	// objects are those of the cluster that its pods may name.
	objects []*object
	// owed is what is still to be requested, in this order.
	owed []func(ctx context.Context) error
	// leaving are the pods whose deletion was requested, by UID.
	leaving map[string]*wish
	// deleted is how many of them podd has deleted from the apiserver.
	deleted int
}

// Ports of the node's ten that nobody else uses: those above are host ports of pods.
const portServer, portAPI, portProxy = 2, 3, 4

// join makes the node one of a cluster.
func (w *world) join(ctx context.Context) (err error) {
	m := &member{leaving: map[string]*wish{}, objects: sharedObjects()}
	w.member = m
	node := w.podd.NodeName()
	m.server = &cluster.APIServer{Binary: w.o.apiserver, Dir: filepath.Join(w.dir, "apiserver"), Port: w.node.Port + portServer, Nodes: []string{node}, OwnEtcd: true}
	if err := m.server.Start(ctx); err != nil {
		return err
	}
	for _, o := range m.objects {
		if err := m.server.Client().Apply(ctx, o.document()); err != nil {
			return err
		}
	}
	kubeconfig := filepath.Join(w.dir, "kubeconfig")
	if err := m.server.NodeKubeconfig(kubeconfig, node); err != nil {
		return err
	}
	if m.proxy, err = newProxy(filepath.Join(w.dir, "proxy.crt"), w.node.Port+portProxy, m.server); err != nil {
		return err
	}
	if err := m.proxy.instead(kubeconfig); err != nil {
		return err
	}
	w.podd.Config["address"] = nil // of all ports; the apiserver comes by the node's address
	w.podd.Args = append(w.podd.Args, "--kubeconfig="+kubeconfig, "--client-ca-file="+m.server.ClientCA(),
		"--cert-dir="+filepath.Join(w.dir, "pki"), "--port="+strconv.Itoa(w.node.Port+portAPI))
	return nil
}

// close ends both.
func (m *member) close() error {
	if m == nil {
		return nil
	}
	var errs []error
	if m.proxy != nil {
		errs = append(errs, m.proxy.close())
	}
	return errors.Join(append(errs, m.server.Stop())...)
}

// do requests something of the apiserver, after what is owed already. What it does not do
// now is done when it is back: what comes, and when, must not depend on how long it is away.
func (m *member) do(ctx context.Context, f func(ctx context.Context) error) {
	m.owed = append(m.owed, f)
	_ = m.pay(ctx)
}

// pay requests what is owed, as far as the apiserver goes along, and returns what keeps it.
func (m *member) pay(ctx context.Context) error {
	for len(m.owed) > 0 {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := m.owed[0](short)
		cancel()
		if err != nil {
			return err
		}
		m.owed = m.owed[1:]
	}
	return nil
}

// createPod makes the pod of a wish, bound to the node. One that is there has come of a
// request whose answer was lost.
func (w *world) createPod(wish *wish) {
	text, err := json.Marshal(wish.pod)
	var pod cluster.Object
	if err = errors.Join(err, json.Unmarshal(text, &pod)); err != nil {
		panic(err) // a pod of this test's own
	}
	pod["spec"].(map[string]any)["nodeName"] = w.podd.NodeName()
	w.member.do(context.Background(), func(ctx context.Context) error {
		err := w.member.server.Client().Create(ctx, pod)
		if err != nil && strings.Contains(err.Error(), "AlreadyExists") {
			return nil
		}
		return err
	})
}

// deletePod requests the deletion of a wish's pod.
func (w *world) deletePod(wish *wish) {
	m := w.member
	m.do(context.Background(), func(ctx context.Context) error {
		var p v1.Pod
		err := m.server.Client().Get(ctx, podNamed(wish.name), &p)
		if errors.Is(err, cluster.ErrNotFound) {
			return nil
		}
		if err == nil {
			m.leaving[string(p.UID)] = wish
			err = m.server.Client().Delete(ctx, podNamed(wish.name))
		}
		return err
	})
}

func podNamed(name string) cluster.Object {
	return cluster.Object{"kind": "Pod", "metadata": map[string]any{"name": name}}
}

// changeBound lets a pod of the cluster come or go. Nobody edits the spec of a pod in a
// cluster: another comes in its place, under another name.
func (w *world) changeBound(step int, rng *rand.Rand) {
	bound := slices.DeleteFunc(slices.Clone(w.desired), func(o *wish) bool { return !o.bound })
	if what := rng.IntN(10); len(w.desired) >= most || len(bound) > 1 && what < 4 {
		if len(bound) == 0 {
			return
		}
		wish := bound[rng.IntN(len(bound))]
		w.say(step, "delete %s from the cluster", wish.name)
		w.desired = slices.DeleteFunc(w.desired, wish.sameName)
		w.deletePod(wish)
		return
	}
	k := boundKinds[rng.IntN(len(boundKinds))]
	wish := &wish{kind: k, name: fmt.Sprintf("c-%s-%d", k.name, w.made), lives: step * 100, bound: true}
	for wish.port = w.node.Port + 5; slices.ContainsFunc(w.desired, wish.samePort); wish.port++ {
	}
	w.renew(wish, rng)
	w.say(step, "create %s in the cluster", wish.name)
	w.desired = append(w.desired, wish)
	w.createPod(wish)
}

// memberFaults strike the cluster around the node.
var memberFaults = []fault{
	{"kill the apiserver", 8, func(ctx context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return w.withoutServer(ctx, rng, meanwhile, w.member.server.Kill)
	}},
	{"kill etcd", 8, func(ctx context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return w.withoutServer(ctx, rng, meanwhile, w.member.server.Etcd.Kill)
	}},
	{"kill apiserver and etcd", 8, func(ctx context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return w.withoutServer(ctx, rng, meanwhile, func() error { return errors.Join(w.member.server.Kill(), w.member.server.Etcd.Kill()) })
	}},
	{"freeze the apiserver", 6, func(_ context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return freeze(w.member.server.Pid(), rng, meanwhile)
	}},
	{"freeze etcd", 6, func(_ context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return freeze(w.member.server.Etcd.Pid(), rng, meanwhile)
	}},
	{"kill podd, apiserver and etcd", 8, func(ctx context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return "", errors.Join(w.member.server.Kill(), w.member.server.Etcd.Kill(),
			w.without(ctx, rng, meanwhile, func() error { return w.podd.Signal(unix.SIGKILL) }), w.member.server.Resume(ctx))
	}},
	{"have the apiserver answer badly", 20, func(_ context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		how := spoilt(1 + rng.IntN(len(spoiltNames)-1))
		long := time.Duration(rng.IntN(5000)) * time.Millisecond
		w.member.proxy.spoil(how)
		err := meanwhile()
		time.Sleep(long)
		w.member.proxy.spoil(sound)
		return fmt.Sprintf("(%s) for %v", how, long), err
	}},
}

// withoutServer takes the apiserver, its etcd or both away for up to eight seconds.
func (w *world) withoutServer(ctx context.Context, rng *rand.Rand, meanwhile, kill func() error) (string, error) {
	long := time.Duration(rng.IntN(8000)) * time.Millisecond
	if err := kill(); err != nil {
		return "", err
	}
	err := meanwhile()
	time.Sleep(long)
	return "for " + long.String(), errors.Join(err, w.member.server.Resume(ctx))
}

// deletedWithNothingLeft: when podd has deleted a pod from the apiserver, nothing of it is on
// the node. (One that has ended the apiserver removes
// itself as soon as its deletion was requested.)
func (w *world) deletedWithNothingLeft(ctx context.Context) error {
	m := w.member
	if m == nil {
		return nil
	}
	var errs []error
	for uid, wish := range m.leaving {
		var p v1.Pod
		err := m.server.Client().Get(ctx, podNamed(wish.name), &p)
		if err == nil {
			continue
		}
		if !errors.Is(err, cluster.ErrNotFound) {
			return errors.Join(errs...) // it is away
		}
		log, err := os.ReadFile(w.podd.LogFile())
		if err != nil {
			return err
		}
		if !strings.Contains(string(log), `msg="pod deleted from the apiserver" pod=default/`+wish.name+" ") {
			delete(m.leaving, uid)
			continue
		}
		m.deleted++
		for name := range w.held() {
			if owner, _, _ := strings.Cut(name, "."); owner == wish.name {
				errs = append(errs, fmt.Errorf("the apiserver has pod %s no more, and its container %s runs", wish.life, name))
			}
		}
		boxes, err := w.node.CRI.Sandboxes(ctx)
		if err != nil {
			return errors.Join(errs...) // the runtime is away: looked at again
		}
		for _, b := range boxes {
			if b.Metadata.GetUid() == uid {
				errs = append(errs, fmt.Errorf("the apiserver has pod %s no more, and its sandbox %.12s is there (%v)", wish.life, b.Id, b.State))
			}
		}
		if _, err := os.Lstat(filepath.Join(w.node.Root(), "pods", uid)); err == nil {
			errs = append(errs, fmt.Errorf("the apiserver has pod %s no more, and its directory is there", wish.life))
		}
		delete(m.leaving, uid)
	}
	return errors.Join(errs...)
}

// asTheClusterSees says what the apiserver does not show as it is: the statuses of pods that
// are bound to the node, those that are gone, and mirror pods.
func (w *world) asTheClusterSees(ctx context.Context, held map[string]bool) error {
	m := w.member
	if m == nil {
		return nil
	}
	if err := m.pay(ctx); err != nil {
		return fmt.Errorf("the apiserver does not take what the test wants: %w", err)
	}
	text, err := m.server.Client().Raw(ctx, "/api/v1/pods?fieldSelector=spec.nodeName%3D"+w.podd.NodeName())
	var list v1.PodList
	if err = errors.Join(err, json.Unmarshal(text, &list)); err != nil {
		return err
	}
	var errs []error
	seen := map[string]bool{}
	for i := range list.Items {
		p := &list.Items[i]
		life := p.Annotations["life"]
		seen[life] = true
		j := slices.IndexFunc(w.desired, func(o *wish) bool { return o.life == life })
		switch _, mirror := p.Annotations[v1.MirrorPodAnnotationKey]; {
		case j < 0:
			errs = append(errs, fmt.Errorf("the apiserver has pod %s, and nobody wants it (mirror: %v, being deleted: %v)", p.Name, mirror, p.DeletionTimestamp != nil))
		case mirror == w.desired[j].bound:
			errs = append(errs, fmt.Errorf("pod %s of the apiserver is a mirror: %v", p.Name, mirror))
		default:
			if err := w.desired[j].asWanted(p, held); err != nil {
				errs = append(errs, fmt.Errorf("the apiserver shows pod %s: %w", p.Name, err))
			}
		}
	}
	for _, wish := range w.desired {
		if wish.bound && !seen[wish.life] {
			errs = append(errs, fmt.Errorf("the apiserver has no pod %s", wish.life))
		}
	}
	return errors.Join(errs...)
}

// clusterAnswers makes the apiserver answer, as it is to be when the node comes to rest.
func (w *world) clusterAnswers(ctx context.Context) error {
	if w.member == nil {
		return nil
	}
	w.member.proxy.spoil(sound)
	if err := w.member.server.Resume(ctx); err != nil {
		return err
	}
	return testnode.Poll(ctx, 100*time.Millisecond, func() error { return w.member.pay(ctx) })
}
