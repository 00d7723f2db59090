package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"podd/test/cluster"
	"podd/test/e2e/testnode"
)

// The sides. Each has a node of its own.
const (
	// sideKubelet is upstream's.
	sideKubelet = "kubelet"
	// sidePodd is podd under the kubelet's name, as clusters start it, and sideOwn podd
	// under its own, as on a machine without a cluster.
	sidePodd = "podd"
	sideOwn  = "podd-run"
)

// The names under which podd runs.
const (
	asKubelet = "kubelet"
	asPodd    = "podd"
)

var allSides = []string{sideKubelet, sidePodd, sideOwn}

// group is what is played together: scenarios, and the sides that play them.
type group struct {
	sides     []string
	scenarios []*Scenario
	inCluster bool // all sides are nodes of one apiserver
}

// groups are those of some scenarios, and of some sides.
func groups(scenarios []*Scenario, sides []string) []group {
	all := []group{
		{sides: []string{sideKubelet, sidePodd}},
		{sides: []string{sideKubelet, sidePodd}, inCluster: true},
		{sides: []string{sideOwn}},
	}
	for _, s := range scenarios {
		if s.inCluster() {
			all[1].scenarios = append(all[1].scenarios, s)
		} else {
			all[0].scenarios = append(all[0].scenarios, s)
		}
		if s.underOwnName() {
			all[2].scenarios = append(all[2].scenarios, s)
		}
	}
	for i := range all {
		all[i].sides = slices.DeleteFunc(all[i].sides, func(side string) bool { return !slices.Contains(sides, side) })
	}
	return slices.DeleteFunc(all, func(g group) bool { return len(g.scenarios) == 0 || len(g.sides) == 0 })
}

// withSides makes a node for each side of a group, starts its agent, calls f and takes all
// of it down again.
func (o options) withSides(ctx context.Context, g group, registry string, f func([]*Side) error) (err error) {
	var server *cluster.APIServer
	if g.inCluster {
		var stop func() error
		if server, stop, err = o.startAPIServer(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	var all []*Side
	for _, name := range g.sides {
		side, stop, err := o.startSide(ctx, name, registry, server)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		all = append(all, side)
	}
	return f(all)
}

// nodes is where the nodes have their directories.
func nodes() string { return filepath.Join(os.TempDir(), "podd-parity") }

// startSide makes a node and starts an agent on it, without an apiserver if server is nil;
// stop takes both down.
func (o options) startSide(ctx context.Context, name, registry string, server *cluster.APIServer) (side *Side, stop func() error, err error) {
	b := testnode.Bundle{Bin: absolute(o.bundle), Images: absolute(o.images), Podd: absolute(o.podd), CollectUsage: name == sideKubelet}
	node, err := testnode.NewNode(ctx, nodes(), b)
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
			err = errors.Join(side.Agent.Close(), o.keepLog(side, server != nil))
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
	if side.Agent, err = o.newAgent(ctx, side, server); err != nil {
		return nil, nil, err
	}
	if err := side.Agent.Start(ctx); err != nil {
		return nil, nil, err
	}
	poll.Go(func() { side.Poll(polling) })
	return side, stop, nil
}

func (o options) newAgent(ctx context.Context, side *Side, server *cluster.APIServer) (agent Agent, err error) {
	if side.Name == sideKubelet {
		agent = newKubelet(side.Node, side.URL.Address, absolute(o.kubelet))
	} else {
		p, err := newPodd(side.Node, side.URL.Address)
		if err != nil {
			return nil, err
		}
		p.AsKubelet = side.Name == sidePodd
		agent = p
	}
	if server == nil {
		return agent, nil
	}
	return joinCluster(ctx, server, side.Name, side.Node, agent)
}

// keepLog saves what the agent wrote.
func (o options) keepLog(side *Side, inCluster bool) error {
	kept := side.Name
	if inCluster {
		kept += "-objects"
	}
	return copyFile(side.Agent.LogFile(), filepath.Join(o.keep, kept+".log"))
}
