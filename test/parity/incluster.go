package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"podd/test/cluster"
	"podd/test/e2e/testnode"
)

// inCluster is an agent that is a node of an apiserver: what it is to run comes from there,
// and there is what it shows and tells.
type inCluster struct {
	Agent
	*throughAPI
}

// startAPIServer starts the apiserver of all sides, at a place of its own; stop ends it.
func (o options) startAPIServer(ctx context.Context) (server *cluster.APIServer, stop func() error, err error) {
	if o.apiserver == "" {
		return nil, nil, fmt.Errorf("-apiserver names none, and there are scenarios that need one")
	}
	place, err := testnode.Claim(nodes())
	if err != nil {
		return nil, nil, err
	}
	server = &cluster.APIServer{Binary: absolute(o.apiserver), Dir: filepath.Join(place.Dir, "apiserver"), Port: place.Port}
	if err := server.Start(ctx); err != nil {
		return nil, nil, errors.Join(err, place.Sweep(), place.Release())
	}
	return server, func() error { return errors.Join(server.Stop(), place.Sweep(), place.Release()) }, nil
}

// joinCluster makes a side's agent a node of the apiserver. The node and the namespace of its
// pods are called after the side.
func joinCluster(ctx context.Context, server *cluster.APIServer, side string, node *testnode.Node, agent Agent) (Agent, error) {
	kubeconfig := filepath.Join(node.Dir, "node.kubeconfig")
	if err := server.Kubeconfig(kubeconfig); err != nil {
		return nil, err
	}
	api := &throughAPI{server: server, node: nodeName + "-" + side, namespace: namespace + "-" + side, placed: map[string][]cluster.Object{}}
	args := []string{"--kubeconfig", kubeconfig, "--hostname-override", api.node}
	switch a := agent.(type) {
	case *podd:
		delete(a.Config, "staticPodURL")
		a.Args = append(a.Args, append(args, "--cert-dir", filepath.Join(a.Dir, "pki"), "--client-ca-file", server.ClientCA(), "--port", strconv.Itoa(node.Port+9))...)
	case *kubelet:
		delete(a.Config, "staticPodURL")
		// By itself it looks once a minute, and a changed object reaches a volume only then.
		a.Config["syncFrequency"] = "1s"
		a.Args = append(a.Args, args...)
	}
	object := cluster.Object{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": api.namespace}}
	return &inCluster{agent, api}, server.Client().Apply(ctx, object)
}

// What is there by the agent's own word is in the apiserver here.

func (c *inCluster) Put(ctx context.Context, file, text string) error {
	return c.throughAPI.Put(ctx, file, text)
}

func (c *inCluster) Rename(ctx context.Context, file, to string) error {
	return c.throughAPI.Rename(ctx, file, to)
}

func (c *inCluster) Remove(ctx context.Context, file string) error {
	return c.throughAPI.Remove(ctx, file)
}

func (c *inCluster) Pods(ctx context.Context) ([]v1.Pod, error) {
	// From the apiserver's memory, which is as new as what a watch has seen.
	body, err := c.server.Client().Raw(ctx, "/api/v1/namespaces/"+c.namespace+"/pods?resourceVersion=0")
	if err != nil {
		return nil, err
	}
	return testnode.DecodePods(body)
}

// unregistered is what a kubelet may say of a pod that has ended: it forgets which
// objects the pod names before it stops to bring its volumes up to date
// (kubernetes/kubernetes#105204).
var unregistered = regexp.MustCompile(`: object "[^"]*"/"[^"]*" not registered$`)

// Events are without those that hang on whether a pod ended between two steps of the
// kubelet's.
func (c *inCluster) Events(ctx context.Context, pod string) ([]Event, error) {
	query := url.Values{"fieldSelector": {"involvedObject.kind=Pod,involvedObject.name=" + pod}}
	body, err := c.server.Client().Raw(ctx, "/api/v1/namespaces/"+c.namespace+"/events?"+query.Encode())
	if err != nil {
		return nil, err
	}
	var list v1.EventList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode the apiserver's events: %w", err)
	}
	events := eventsOf(list.Items)
	return slices.DeleteFunc(events, func(e Event) bool { return e.Reason == "FailedMount" && unregistered.MatchString(e.Message) }), nil
}
