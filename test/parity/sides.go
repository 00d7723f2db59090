package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"podd/test/e2e/testnode"
)

// withSides makes a node for each side, starts its agent, calls f and takes all
// of it down again.
func (o options) withSides(ctx context.Context, names []string, registry string, f func([]*Side) error) (err error) {
	var all []*Side
	for _, name := range names {
		side, stop, err := o.startSide(ctx, name, registry)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		all = append(all, side)
	}
	return f(all)
}

// startSide makes a node and starts an agent on it; stop takes both down.
func (o options) startSide(ctx context.Context, name, registry string) (side *Side, stop func() error, err error) {
	b := testnode.Bundle{Bin: absolute(o.bundle), Images: absolute(o.images), Podd: absolute(o.podd)}
	node, err := testnode.NewNode(ctx, filepath.Join(os.TempDir(), "podd-parity"), b)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	url, err := serveURL()
	if err != nil {
		return nil, nil, errors.Join(err, node.Close())
	}
	side = &Side{
		Name: name, Node: node, URL: url, Out: filepath.Join(node.Dir, "out"), Tools: filepath.Join(node.Dir, "tools"),
		Registry: registry, sane: &sanity{node.Subnet, map[string]string{}}, watched: map[string]*watched{}, polled: make(chan struct{}),
	}
	polling, cancel := context.WithCancel(ctx)
	var poll sync.WaitGroup
	stop = func() error {
		cancel()
		poll.Wait()
		var err error
		if side.Agent != nil {
			err = errors.Join(side.Agent.Close(), o.keepLog(name, node))
		}
		return errors.Join(err, node.Close(), url.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", name, err), stop())
		}
	}()
	err = errors.Join(os.MkdirAll(side.Out, 0o755), os.MkdirAll(side.Tools, 0o755), copyFile(o.fixture, filepath.Join(side.Tools, "fixture")))
	if err != nil {
		return nil, nil, err
	}
	if side.Agent, err = o.newAgent(name, node, url.Address); err != nil {
		return nil, nil, err
	}
	if err := side.Agent.Start(ctx); err != nil {
		return nil, nil, err
	}
	poll.Go(func() { side.Poll(polling) })
	return side, stop, nil
}

func (o options) newAgent(name string, node *testnode.Node, url string) (Agent, error) {
	if name == "podd" {
		return newPodd(node, url)
	}
	if !o.inCluster {
		return newKubelet(node, url, absolute(o.kubelet)), nil
	}
	if o.apiserver == "" {
		return nil, fmt.Errorf("-apiserver names none, and there are scenarios that need one")
	}
	return newKubeletInCluster(node, absolute(o.kubelet), absolute(o.apiserver)), nil
}

// keepLog saves what the agent wrote.
func (o options) keepLog(name string, node *testnode.Node) error {
	kept := name
	if o.inCluster {
		kept += "-objects"
	}
	return copyFile(filepath.Join(node.Dir, name, name+".log"), filepath.Join(o.keep, kept+".log"))
}
